import type { View } from '../../../../replica/view.ts';
import type { Judge } from '../judge.ts';
import type { Run } from '../run.ts';
import { readIndex } from './index-copy.ts';

interface Row {
  readonly file: number;
  readonly view: string;
}

/** For one file and one view number there is one set of members, on every server and at every time. */
export class MembersJudge implements Judge {
  readonly name = 'members';
  /** By file and number of its view: the members, and the server that showed them first. */
  readonly #views = new Map<string, { readonly members: string; readonly server: string }>();

  look(run: Run): void {
    for (const server of run.cluster.servers)
      if (server.hasStarted) run.cluster.time.asHost(() => this.#sample(run, server.id, server.disk.folder));
  }

  async quiet(run: Run): Promise<void> {
    this.look(run);
    run.count('views', this.#views.size);
  }

  #sample(run: Run, server: string, folder: string): void {
    readIndex(folder, null, (database) => {
      const rows = database.prepare('SELECT file, view FROM files').all() as Row[];
      for (const { file, view } of rows) this.#see(run, server, file, JSON.parse(view) as View);
      return null;
    });
  }

  #see(run: Run, server: string, file: number, view: View): void {
    const key = `${file} ${view.number}`;
    const members = JSON.stringify([[...view.members].sort(), [...(view.joint ?? [])].sort()]);
    const known = this.#views.get(key);
    if (known === undefined) this.#views.set(key, { members, server });
    else if (known.members !== members)
      run.violation(
        `file ${file} has two sets of members in view ${view.number}: ${known.members} at ${known.server}, ${members} at ${server}`,
      );
  }
}
