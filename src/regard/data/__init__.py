"""Data in and out: the notes' data set, a house-price table of our own, tables as named columns, and pairs of texts.

    notes, notes_truth       fifty points on a curve, as in the study notes
    houses, houses_truth     a small house-price table with a known formula
    read_table, write_table  CSV, TSV (gzipped or not) and Parquet
    read_batches, write_batches  the same piece by piece, for tables larger than memory
    from_dataframe           a dataframe of any library
    dates, number_words,     pairs of texts that know which character of the source each character of the target
    reversal                 comes from
    read_pairs, read_parallel, read_lines  texts in files, tab by tab or line by line

Everything here is at the bottom of the house: it knows nothing of queries, keys and values.
"""

from regard.data.dates import DATE_FORMATS, DATE_LANGUAGES, DateFormat, dates
from regard.data.formats import read_batches, read_table, write_batches, write_table
from regard.data.number_words import number_words, reversal
from regard.data.pairs import Pairs, PairsError, read_lines, read_pairs, read_parallel
from regard.data.synthetic import HousesData, NotesData, houses, houses_truth, notes, notes_truth
from regard.data.table import Table, TableError, from_dataframe

__all__ = [
    "DATE_FORMATS",
    "DATE_LANGUAGES",
    "DateFormat",
    "HousesData",
    "NotesData",
    "Pairs",
    "PairsError",
    "Table",
    "TableError",
    "dates",
    "from_dataframe",
    "houses",
    "houses_truth",
    "notes",
    "notes_truth",
    "number_words",
    "read_batches",
    "read_lines",
    "read_pairs",
    "read_parallel",
    "read_table",
    "reversal",
    "write_batches",
    "write_table",
]
