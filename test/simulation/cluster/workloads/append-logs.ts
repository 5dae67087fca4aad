import { constants } from 'node:fs';
import type { MountProgram } from '../program.ts';
import type { Workload } from '../workload.ts';
import { perRun, Rotation, turns } from './parts.ts';

const { O_APPEND, O_CREAT, O_RDONLY, O_WRONLY } = constants;
const OPERATIONS_MAX = 40;
const READ_BYTES = 65_536;
const THINK_MS_MAX = 90;

const logsOf = perRun(() => new Rotation<string>());

async function use(program: MountProgram, path: string): Promise<void> {
  const { draw, process, run, volume } = program;
  const key = `list/${volume}${path}`;
  if (draw.chance(0.4)) {
    await program.operation('read', key, null, { ENOENT: [] }, () =>
      program.opened(path, O_RDONLY, async (file) => {
        const bytes = await process.pread(file, READ_BYTES, 0);
        run.count('log read');
        // Bytes after the last end of a line would be a torn line.
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

/**
 * Logs to which programs of all mounts append: each line is there once and whole, and the list of lines is
 * linearizable.
 */
export const appendLogs: Workload = {
  name: 'append-logs',
  demands: ['line appended', 'log read'],
  mount: turns(THINK_MS_MAX, (program) => {
    const { run, volume } = program;
    const path = logsOf(run).current(volume, OPERATIONS_MAX, () => `/log-${run.fresh()}`);
    // Linux ignores sizes in a mount's answers while one of its programs extends the file.
    return program.inTurn(path, () => use(program, path));
  }),
};
