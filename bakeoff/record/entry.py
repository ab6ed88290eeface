"""All kinds of entries that a folder of records holds."""

from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import CeilingsRecord, Comparison, Record, Supersede

Entry = Record | Supersede | Comparison | CeilingsRecord | PipelineRecord
