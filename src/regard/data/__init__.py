"""Data sets and files: the notes' data set, a synthetic house-price table, tables of named columns, and text pairs.

    notes, notes_truth       fifty points on a curve, as in the study notes
    houses, houses_truth     a small house-price table with a known formula
    read_table, write_table  CSV, TSV (gzipped or not) and Parquet
    read_batches, write_batches  the same in batches, for tables larger than memory
    from_dataframe           a dataframe of any library
    dates, number_words,     text pairs with gold alignments: the source character from which each target character
    reversal                 comes
    read_pairs, read_parallel, read_lines  texts in files, separated by tabs or line by line

This package is at the lowest layer and does not depend on queries, keys and values.

>>> DATE_LANGUAGES, DATE_FORMATS["en-slashes"].language
(('en', 'fr', 'de', 'es', 'zh'), 'en')
"""

from regard.data.dates import DATE_FORMATS, DATE_LANGUAGES, DateFormat, dates
from regard.data.formats import read_batches, read_table, write_batches, write_table
from regard.data.number_words import number_words, reversal
from regard.data.synthetic import HousesData, NotesData, houses, houses_truth, notes, notes_truth
from regard.data.table import Table, TableError, from_dataframe
from regard.data.text_pairs import Pairs, PairsError, read_lines, read_pairs, read_parallel

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
