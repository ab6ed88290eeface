"""The instrument tested on itself: back ends that lie or die must be found out, honest ones must not be accused."""
