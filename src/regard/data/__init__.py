"""Data in and out: the notes' data set, a house-price table of our own, and tables as named columns.

    notes, notes_truth       fifty points on a curve, as in the study notes
    houses, houses_truth     a small house-price table with a known formula
    read_table, write_table  CSV, TSV (gzipped or not) and Parquet
    from_dataframe           a dataframe of any library

Everything here is at the bottom of the house: it knows nothing of queries, keys and values.
"""

from regard.data.formats import read_table, write_table
from regard.data.synthetic import HousesData, NotesData, houses, houses_truth, notes, notes_truth
from regard.data.table import Table, TableError, from_dataframe

__all__ = [
    "HousesData",
    "NotesData",
    "Table",
    "TableError",
    "from_dataframe",
    "houses",
    "houses_truth",
    "notes",
    "notes_truth",
    "read_table",
    "write_table",
]
