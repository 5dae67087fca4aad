import assert from 'node:assert/strict';
import { ACCESS_ACL, DEFAULT_ACL, decodeAcl, isMinimal, modeWithAcl } from '../../catalog/acl.ts';
import type { CatalogDatabase } from '../../catalog/schema.ts';

/** A mode and a list always agree, and only inodes that may have lists have them. */
function assertAclsSound(db: CatalogDatabase): void {
  const rows = db
    .prepare('SELECT i.kind, i.mode, x.name, x.value FROM xattrs x JOIN inodes i ON i.id = x.inode')
    .all() as { kind: number; mode: number; name: string; value: Uint8Array }[];
  for (const { kind, mode, name, value } of rows) {
    if (name === DEFAULT_ACL) assert.equal(kind, 2, 'Only directories have a default list');
    if (name !== ACCESS_ACL) continue;
    const acl = decodeAcl(value);
    assert.notEqual(kind, 3, 'Symbolic links have no list');
    assert.equal(isMinimal(acl), false, 'A list that equals a mode is not stored');
    assert.equal(modeWithAcl(mode, acl), mode);
  }
}

/** Invariants of every catalog between two batches. */
export function assertSound(db: CatalogDatabase): void {
  assertAclsSound(db);
  const none = (what: string, sql: string): void => assert.deepEqual(db.prepare(sql).all(), [], what);
  none(
    'Every name refers to an inode, and is in a directory of the same volume',
    `SELECT * FROM entries e LEFT JOIN inodes i ON i.id = e.inode LEFT JOIN inodes p ON p.id = e.parent
     WHERE i.id IS NULL OR p.id IS NULL OR p.kind <> 2 OR p.volume <> i.volume`,
  );
  none(
    'What is no directory counts its names',
    `SELECT * FROM inodes i WHERE kind <> 2 AND links <> (SELECT COUNT(*) FROM entries WHERE inode = i.id) +
       (SELECT COALESCE(SUM(names), 0) FROM clone_names WHERE inode = i.id)`,
  );
  none(
    'A directory counts its subdirectories',
    `SELECT * FROM inodes p WHERE kind = 2 AND links <> 2 +
       (SELECT COUNT(*) FROM entries e JOIN inodes i ON i.id = e.inode WHERE e.parent = p.id AND i.kind = 2)
       AND p.id NOT IN (SELECT inode FROM unfilled)`,
  );
  none(
    'A directory has one name, in its parent; a root has none',
    `SELECT * FROM inodes d WHERE kind = 2 AND
       (SELECT COUNT(*) FROM entries WHERE inode = d.id) + (SELECT COUNT(*) FROM volumes WHERE root = d.id) <> 1
     UNION ALL SELECT d.* FROM inodes d JOIN entries e ON e.inode = d.id WHERE kind = 2 AND d.parent <> e.parent`,
  );
  none(
    'Exactly what has no name is an orphan',
    'SELECT * FROM inodes WHERE (links = 0) <> (orphaned_ns IS NOT NULL)',
  );
  none(
    'A volume counts its inodes and their bytes',
    `SELECT * FROM volumes v WHERE inodes <> (SELECT COUNT(*) FROM inodes WHERE volume = v.id)
       OR used_bytes <> (SELECT COALESCE(SUM(size), 0) FROM inodes WHERE volume = v.id AND kind = 1)`,
  );
  none(
    'A volume counts what has a name or is in the trash, with what its files may grow to',
    `SELECT * FROM volumes v WHERE named_inodes <>
         (SELECT COUNT(*) FROM inodes WHERE volume = v.id AND (orphaned_ns IS NULL OR id IN (SELECT inode FROM trash)))
       OR named_bytes <> (SELECT COALESCE(SUM(MAX(size, COALESCE(allowed, 0))), 0) FROM inodes
         WHERE volume = v.id AND kind = 1 AND (orphaned_ns IS NULL OR id IN (SELECT inode FROM trash)))`,
  );
  none(
    'and of that, what is in the trash',
    `SELECT * FROM volumes v WHERE trashed_inodes <> (SELECT COUNT(*) FROM trash WHERE volume = v.id)
       OR trashed_bytes <> (SELECT COALESCE(SUM(MAX(i.size, COALESCE(i.allowed, 0))), 0)
         FROM trash t JOIN inodes i ON i.id = t.inode WHERE t.volume = v.id)`,
  );
  none(
    'What is in the trash is a file of that volume without a name, that is kept for longer than it was removed',
    `SELECT * FROM trash t LEFT JOIN inodes i ON i.id = t.inode WHERE i.id IS NULL OR i.kind <> 1 OR i.links <> 0
       OR i.volume <> t.volume OR i.orphaned_ns IS NULL OR i.orphaned_ns <= t.removed_ns OR t.path NOT LIKE '/_%'`,
  );
  none(
    'Only files may grow, and only live ones by more than they have',
    'SELECT * FROM inodes WHERE (allowed IS NOT NULL AND kind <> 1) OR (live = 0 AND allowed > size)',
  );
  none(
    'A junction is a directory without entries',
    `SELECT * FROM junctions j LEFT JOIN inodes i ON i.id = j.inode WHERE i.id IS NULL OR i.kind <> 2
       OR EXISTS (SELECT 1 FROM entries e WHERE e.parent = j.inode)`,
  );
  const placed = db.prepare('SELECT server, inode FROM placements ORDER BY inode, server').all();
  const rows = db.prepare("SELECT id, replicas FROM inodes WHERE replicas <> '' ORDER BY id").all();
  const members = (rows as { id: number; replicas: string }[]).flatMap(({ id, replicas }) =>
    replicas
      .split(',')
      .sort()
      .map((member) => ({ server: member, inode: id })),
  );
  assert.deepEqual(placed, members, 'What is on a server is what names the server');
  none(
    'A server counts its files, and one without files has no count',
    `SELECT server, COUNT(*) FROM placements GROUP BY server EXCEPT SELECT server, files FROM placement_counts
     UNION ALL SELECT * FROM placement_counts c WHERE files <> (SELECT COUNT(*) FROM placements WHERE server = c.server)
       OR files = 0`,
  );
  none(
    'The sets of servers count their files',
    `SELECT replicas, COUNT(*) FROM inodes WHERE replicas <> '' GROUP BY replicas EXCEPT SELECT * FROM member_sets
     UNION ALL SELECT * FROM member_sets s WHERE files <> (SELECT COUNT(*) FROM inodes WHERE replicas = s.members)
       OR files = 0`,
  );
  none(
    'A class belongs to a directory, which has it',
    `SELECT * FROM directory_classes c WHERE NOT EXISTS (SELECT 1 FROM inodes i
       WHERE i.id = c.directory AND i.kind = 2 AND i.volume = c.volume AND i.placement = c.directory)`,
  );
  none(
    'A file counts its members',
    `SELECT * FROM inodes i WHERE kind = 1 AND replicas <> ''
       AND members <> (SELECT COUNT(*) FROM placements WHERE inode = i.id)`,
  );
  none(
    'Exactly what has a date is marked, and until then it has a name',
    `SELECT i.id FROM inodes i LEFT JOIN retentions r ON r.inode = i.id WHERE (i.flags & 4 <> 0) <> (r.inode IS NOT NULL)
       OR r.until_ns > (SELECT clock_ns FROM retention_clock) AND i.links = 0
     UNION ALL SELECT inode FROM retentions WHERE inode NOT IN (SELECT id FROM inodes WHERE kind = 1)`,
  );
  none(
    'Snapshots that are retained exist',
    `SELECT * FROM retained_snapshots r
     WHERE NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.volume = r.volume AND s.serial = r.serial)`,
  );
  none(
    'A volume knows its latest date',
    `SELECT i.volume FROM retentions r JOIN inodes i ON i.id = r.inode JOIN volumes v ON v.id = i.volume
     WHERE r.until_ns > v.retained_ns`,
  );
  none(
    'A quota belongs to a directory, which counts against it, or outlasts it for files in the trash',
    `SELECT q.* FROM directory_quotas q LEFT JOIN inodes i ON i.id = q.directory
     WHERE i.id IS NULL AND NOT EXISTS (SELECT 1 FROM inodes f JOIN trash t ON t.inode = f.id WHERE f.quota = q.directory)
         AND NOT EXISTS (SELECT 1 FROM directory_quotas e WHERE e.enclosing = q.directory)
       OR i.id IS NOT NULL AND (i.kind <> 2 OR i.volume <> q.volume OR i.quota <> i.id OR i.parent <> i.id AND
         q.enclosing <> (SELECT p.quota FROM inodes p WHERE p.id = i.parent))`,
  );
  none(
    'Every name without a quota of its own counts against the quota of its directory',
    `SELECT i.* FROM entries e JOIN inodes i ON i.id = e.inode JOIN inodes p ON p.id = e.parent
     WHERE i.quota <> p.quota AND NOT EXISTS (SELECT 1 FROM directory_quotas q WHERE q.directory = i.id)`,
  );
  for (const [column, value] of [
    ['named_inodes', '1'],
    ['named_bytes', '(i.kind = 1) * MAX(i.size, COALESCE(i.allowed, 0))'],
  ])
    none(
      `A directory with a quota counts what is in it and in those in it: ${column}`,
      `WITH RECURSIVE counts (directory, n) AS (
         SELECT i.quota, ${value} FROM inodes i JOIN directory_quotas q ON q.directory = i.quota
         WHERE i.orphaned_ns IS NULL OR i.id IN (SELECT inode FROM trash)
         UNION ALL SELECT q.enclosing, c.n FROM counts c JOIN directory_quotas q USING (directory) WHERE q.enclosing > 0)
       SELECT * FROM directory_quotas q
       WHERE ${column} <> (SELECT COALESCE(SUM(n), 0) FROM counts c WHERE c.directory = q.directory)`,
    );
  none(
    'A clone counts what needs its snapshot, which exists',
    `SELECT * FROM clones c WHERE unfilled = 0
       OR unfilled <> (SELECT COUNT(*) FROM unfilled u WHERE u.volume = c.volume)
       OR NOT EXISTS (SELECT 1 FROM volumes v WHERE v.id = c.volume)
       OR NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.volume = c.source AND s.serial = c.serial)`,
  );
  none(
    'Directories and files of clones need their snapshot, and such files have no servers',
    `SELECT u.* FROM unfilled u LEFT JOIN inodes i ON i.id = u.inode
     WHERE i.id IS NULL OR i.volume <> u.volume OR u.volume NOT IN (SELECT volume FROM clones)
       OR NOT (i.kind = 2 OR i.kind = 1 AND i.replicas = '' AND i.view = 0 AND i.live = 0 AND u.position = '')`,
  );
  none(
    'Names of a copy are to come while there is a directory for them',
    `SELECT n.* FROM clone_names n LEFT JOIN inodes i ON i.id = n.inode
     WHERE i.id IS NULL OR i.volume <> n.volume OR n.names < 1 OR NOT EXISTS
       (SELECT 1 FROM unfilled u JOIN inodes d ON d.id = u.inode WHERE u.volume = n.volume AND d.kind = 2)`,
  );
  none('Attributes belong to inodes', 'SELECT * FROM xattrs WHERE inode NOT IN (SELECT id FROM inodes)');
}
