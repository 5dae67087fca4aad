import type { View } from '../../../../replica/view.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { readDatabaseCopy } from './database-copy.ts';

interface Row {
  readonly file: number;
  readonly view: string;
}

/** The member sets that servers have shown: each file and view number has only one. */
export class MemberSets {
  /** By file and view number: the members, and the server that showed them first. */
  readonly #views = new Map<string, { readonly members: string; readonly server: string }>();

  get size(): number {
    return this.#views.size;
  }

  /** Reads the views of a running server. @returns contradictions to earlier ones */
  sample(server: string, folder: string): string[] {
    return readDatabaseCopy<string[]>(folder, 'index.db', [], (database) => {
      const rows = database.prepare('SELECT file, view FROM files').all() as Row[];
      return rows.flatMap(({ file, view }) => this.#see(server, file, JSON.parse(view) as View));
    });
  }

  #see(server: string, file: number, view: View): string[] {
    const key = `${file} ${view.number}`;
    const members = JSON.stringify([[...view.members].sort(), [...(view.joint ?? [])].sort()]);
    const known = this.#views.get(key);
    if (known === undefined) this.#views.set(key, { members, server });
    if (known === undefined || known.members === members) return [];
    return [
      `file ${file} has two sets of members in view ${view.number}: ${known.members} at ${known.server}, ${members} at ${server}`,
    ];
  }
}

/** Each file and view number must have one member set, on every server and at every time. */
export class MembersJudge implements Judge {
  readonly #sets = new MemberSets();

  look(run: Run): void {
    for (const { id, disk, hasStarted } of run.cluster.servers) {
      if (!hasStarted) continue;
      for (const text of run.cluster.time.asHost(() => this.#sets.sample(id, disk.folder)))
        run.violation(text);
    }
  }

  async quiet(run: Run): Promise<void> {
    this.look(run);
    run.count('views', this.#sets.size);
  }
}
