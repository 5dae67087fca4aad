import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import type { View } from '../../../replica/view.ts';

/** A replica as a server's index has it. */
interface Replica {
  readonly file: number;
  readonly view: View;
  readonly seq: number;
  readonly sizeBytes: number;
  /** Versions and checksums of its objects, as text. */
  readonly objects: string;
}

interface Row {
  readonly file: number;
  readonly view: string;
  readonly seq: number;
  readonly sizeBytes: number;
}

/** Reads a copy of a server's index: the server, which may be running, has the index for itself. */
function readIndex<Value>(folder: string, none: Value, read: (database: Database.Database) => Value): Value {
  const [path, copy] = [join(folder, 'index.db'), `${folder}-index-copy.db`];
  if (!existsSync(path)) return none;
  copyFileSync(path, copy);
  if (existsSync(`${path}-wal`)) copyFileSync(`${path}-wal`, `${copy}-wal`);
  const database = new Database(copy);
  try {
    return read(database);
  } finally {
    database.close();
    for (const ending of ['', '-wal', '-shm']) rmSync(`${copy}${ending}`, { force: true });
  }
}

/** @returns the replicas in the data folder of a server */
function replicasIn(folder: string): Replica[] {
  return readIndex(folder, [], (database) => {
    const files = database
      .prepare('SELECT file, view, seq, size_bytes AS sizeBytes FROM files')
      .all() as Row[];
    const objects = database.prepare(
      `SELECT group_concat(idx || ':' || version_epoch || '.' || version_seq || ':' || length || ':' || crc32, ' ')
       FROM (SELECT * FROM objects WHERE file = ? ORDER BY idx)`,
    );
    return files.map(({ file, view, seq, sizeBytes }) => ({
      ...{ file, seq, sizeBytes, view: JSON.parse(view) as View },
      objects: (objects.pluck().get(file) as string | null) ?? '',
    }));
  });
}

/** What a run has seen of the replicas of all servers. */
export class ReplicasJudge {
  /** By file and number of its view: the members, and the server that showed them first. */
  readonly #views = new Map<string, { readonly members: string; readonly server: string }>();
  readonly violations: string[] = [];
  views = 0;

  /** Looks at the views of a running server: for one file and view number there is one set of members, ever. */
  sample(server: string, folder: string): void {
    readIndex(folder, null, (database) => {
      const rows = database.prepare('SELECT file, view FROM files').all() as Pick<Row, 'file' | 'view'>[];
      for (const { file, view } of rows) this.#see(server, file, JSON.parse(view) as View);
      return null;
    });
  }

  #see(server: string, file: number, view: View): void {
    const key = `${file} ${view.number}`;
    const members = JSON.stringify([[...view.members].sort(), [...(view.joint ?? [])].sort()]);
    const known = this.#views.get(key);
    if (known === undefined) {
      this.#views.set(key, { members, server });
      this.views++;
    } else if (known.members !== members) {
      this.violations.push(
        `file ${file} has two sets of members in view ${view.number}: ${known.members} at ${known.server}, ${members} at ${server}`,
      );
    }
  }

  /** @returns what differs between the members of the newest views of `files`; all is quiet */
  differences(folders: ReadonlyMap<string, string>, files: readonly number[]): string[] {
    const byServer = new Map<string, Map<number, Replica>>();
    for (const [server, folder] of folders) {
      byServer.set(server, new Map(replicasIn(folder).map((replica) => [replica.file, replica])));
    }
    return files.flatMap((file) => this.#differencesOf(byServer, file));
  }

  #differencesOf(byServer: ReadonlyMap<string, ReadonlyMap<number, Replica>>, file: number): string[] {
    const held = [...byServer].flatMap(([server, replicas]) => {
      const replica = replicas.get(file);
      return replica === undefined ? [] : [{ server, replica }];
    });
    const newest = Math.max(...held.map(({ replica }) => replica.view.number));
    const current = held.filter(({ replica }) => replica.view.number === newest);
    const [first] = current;
    // A file that was never written may have no replica yet.
    if (first === undefined) return [];
    const members = first.replica.view.members;
    const said = new Map<string, string[]>();
    for (const { server, replica } of current) {
      if (!members.includes(server as never)) continue;
      const what = `operation ${replica.seq}, ${replica.sizeBytes} bytes, objects ${replica.objects}`;
      said.set(what, [...(said.get(what) ?? []), server]);
    }
    if (said.size <= 1) return [];
    const all = [...said].map(([what, servers]) => `${servers.join()}: ${what}`).join('; ');
    return [`the replicas of file ${file} in view ${newest} of ${members.join()} differ: ${all}`];
  }
}
