import type { View } from '../../../../replica/view.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { readDatabaseCopy } from './database-copy.ts';

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

/** @returns the replicas in the data folder of a server */
function replicasIn(folder: string): Replica[] {
  return readDatabaseCopy(folder, 'index.db', [], (database) => {
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

/** The replicas of each file that still has a name are equal once all is quiet. */
export class ReplicasJudge implements Judge {
  async quiet(run: Run): Promise<void> {
    const folders = new Map(run.cluster.servers.map(({ id, disk }) => [id, disk.folder]));
    for (const text of this.#differences(
      folders,
      run.kept.map(({ inode }) => inode),
    ))
      run.violation(text);
  }

  /** @returns what differs between the members of the newest views of `files`; all is quiet */
  #differences(folders: ReadonlyMap<string, string>, files: readonly number[]): string[] {
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
