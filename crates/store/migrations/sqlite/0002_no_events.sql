-- Events are in files of their own (`daemon/events/`), which need no database.
DROP TABLE events;
