CREATE TABLE replan_breakers (
    kind VARCHAR(200) NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (kind)
);
CREATE TABLE replan_checked (
    namespace VARCHAR(200) NOT NULL,
    queue VARCHAR(1000) NOT NULL,
    version VARCHAR(100) NOT NULL,
    PRIMARY KEY (namespace, queue, version)
);
CREATE TABLE replan_ledger (
    "key" VARCHAR(1200) NOT NULL,
    task VARCHAR(1000) NOT NULL,
    step VARCHAR(200) NOT NULL,
    kind VARCHAR(200) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    result TEXT,
    at DATETIME NOT NULL,
    claim INTEGER DEFAULT '0' NOT NULL,
    undone_at DATETIME,
    undone_by VARCHAR(1200),
    PRIMARY KEY ("key")
);
CREATE TABLE replan_ledger_revision (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT replan_ledger_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "replan_ledger_revision" VALUES('0001');
CREATE TABLE replan_payloads (
    task VARCHAR(1000) NOT NULL,
    digest VARCHAR(64) NOT NULL,
    size INTEGER NOT NULL,
    stored DATETIME NOT NULL,
    data BLOB NOT NULL, namespace VARCHAR(200), pruned DATETIME, pruned_by VARCHAR(200),
    PRIMARY KEY (task, digest)
);
CREATE TABLE replan_store (
    id VARCHAR(36) NOT NULL,
    PRIMARY KEY (id)
);
INSERT INTO "replan_store" VALUES('33f63e32-3036-4a79-873b-b7b847118849');
CREATE TABLE replan_store_revision (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT replan_store_revision_pkc PRIMARY KEY (version_num)
);
INSERT INTO "replan_store_revision" VALUES('0006');
CREATE TABLE replan_tickets (
    service VARCHAR(200) NOT NULL,
    "key" VARCHAR(1200) NOT NULL,
    namespace VARCHAR(200) NOT NULL,
    workflow VARCHAR(1000) NOT NULL,
    started FLOAT NOT NULL,
    since FLOAT NOT NULL,
    called FLOAT NOT NULL,
    calls INTEGER NOT NULL,
    trials INTEGER NOT NULL,
    PRIMARY KEY (service, "key")
);
CREATE TABLE replan_turns (
    task VARCHAR(200) NOT NULL,
    branch INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    "before" INTEGER NOT NULL,
    digest VARCHAR(64) NOT NULL,
    at DATETIME NOT NULL,
    situation TEXT NOT NULL,
    proposed TEXT NOT NULL,
    exchange TEXT,
    upto INTEGER DEFAULT '0' NOT NULL, namespace VARCHAR(200), workflow VARCHAR(1000),
    PRIMARY KEY (task, branch, turn)
);
CREATE INDEX ix_replan_ledger_task ON replan_ledger (task);
CREATE INDEX replan_payloads_owner ON replan_payloads (namespace, task, stored);
CREATE INDEX replan_turns_owner ON replan_turns (namespace, workflow, at);
