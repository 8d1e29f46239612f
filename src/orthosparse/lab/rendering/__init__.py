"""One renderer for all that people read: tables, figures and pages as plain data, and the formats they take."""
