"""The pages of reports: each module makes documents of one kind from records."""
