"""Texts and HTML of objects: one line, and tables for notebooks, light and dark, without JavaScript."""

from .html import Html as Html
from .html import code as code
from .html import details as details
from .html import facts_table as facts_table
from .html import frame as frame
from .html import picture as picture
from .html import table as table
from .html import title as title
from .shown import Shown as Shown
from .shown import one_line as one_line
from .shown import settings as settings
