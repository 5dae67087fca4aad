import { constants } from 'node:fs';
import type { MountProgram } from '../program.ts';
import type { Run } from '../run.ts';
import type { Workload } from '../workload.ts';

const { O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;
/** The search for an order grows with the operations on one log: after so many there is another one. */
const OPERATIONS_MAX = 40;
const READ_BYTES = 65_536;
const THINK_MS_MAX = 90;

/** Logs to which programs of all mounts append: each line lands once and in one piece, and a list of them is linearizable. */
export const appendLogs: Workload = {
  name: 'append-logs',
  demands: ['line appended', 'log read'],
  async mount(program) {
    while (!program.isEnding) {
      const path = Logs.of(program.run).current(program);
      // Linux ignores sizes that a mount answers while one of its programs extends the file.
      await program.inTurn(path, () => use(program, path));
      await program.think(THINK_MS_MAX);
    }
  },
};

class Logs {
  /** Operations, by the path of the log of each volume. */
  readonly #current = new Map<string, { readonly path: string; operations: number }>();

  static of(run: Run): Logs {
    return run.state(make);
  }

  current({ run, volume }: MountProgram): string {
    const log = this.#current.get(volume);
    if (log !== undefined && ++log.operations < OPERATIONS_MAX) return log.path;
    const path = `/log-${run.fresh()}`;
    this.#current.set(volume, { path, operations: 1 });
    return path;
  }
}

const make = (): Logs => new Logs();

async function use(program: MountProgram, path: string): Promise<void> {
  const { draw, process, run, volume } = program;
  const key = `list/${volume}${path}`;
  if (draw.chance(0.4)) {
    await program.operation('read', key, null, { ENOENT: [] }, () =>
      program.opened(path, O_RDONLY, async (file) => {
        const bytes = await process.pread(file, READ_BYTES, 0);
        run.count('log read');
        // What stands behind the last end of a line would be a line in pieces.
        return bytes
          .toString('latin1')
          .split('\n')
          .filter((line, at, all) => at < all.length - 1 || line !== '');
      }),
    );
    return;
  }
  const line = run.fresh();
  const isSynced = draw.chance(0.3);
  await program.operation('append', key, line, {}, () =>
    program.opened(path, O_WRONLY | O_APPEND | O_CREAT, async (file) => {
      await process.write(file, Buffer.from(`${line}\n`, 'latin1'));
      if (isSynced) await process.fsync(file);
      run.count('line appended');
      return null;
    }),
  );
}
