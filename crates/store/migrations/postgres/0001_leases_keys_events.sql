-- What the daemon remembers. A migration that was released is never edited: a new one follows it.
--
-- Texts compare by their bytes, as they do in SQLite: what the language of a server would make of
-- them is nobody's wish here. An index holds no text that has no small bound, such as a label or
-- a template: an entry takes 2,700 bytes and no more.

-- Whose memory this is: one row, with the id of a home.
CREATE TABLE soma_home (
    id TEXT COLLATE "C" NOT NULL,
    is_only BOOLEAN NOT NULL PRIMARY KEY DEFAULT TRUE CHECK (is_only)
);

-- One row for each sandbox: what can be searched for, and the whole record as JSON.
CREATE TABLE leases (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C",
    state TEXT COLLATE "C" NOT NULL,
    template TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    record TEXT NOT NULL
);

-- Sandboxes without a name do not collide: NULL is no name's equal.
CREATE UNIQUE INDEX leases_by_name ON leases (owner, name);

CREATE INDEX leases_by_owner ON leases (owner, created_at, id);
CREATE INDEX leases_by_creation ON leases (created_at, id);

CREATE TABLE lease_labels (
    lease TEXT COLLATE "C" NOT NULL REFERENCES leases (id) ON DELETE CASCADE,
    key TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL
);

CREATE INDEX lease_labels_by_lease ON lease_labels (lease);

-- The hash is hexadecimal, so that it is found by equality in any database.
CREATE TABLE api_keys (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

-- Only the oldest events are ever dropped, so the sequence rises for ever.
CREATE TABLE events (
    sequence BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    sandbox TEXT COLLATE "C" NOT NULL,
    record TEXT NOT NULL
);

CREATE INDEX events_by_owner ON events (owner, sequence);
CREATE INDEX events_by_sandbox ON events (sandbox, sequence);
