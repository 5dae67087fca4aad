import { type Command, Option } from 'commander';
import type { ScrubStatus, ScrubStatuses } from '../../wire/http-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { EXIT_DEGRADED } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { formatBytes } from '../terminal/quantities.ts';
import { clusterCommand } from './cluster-command.ts';

const POLL_MS = 1_000;

interface ScrubOptions {
  readonly progress?: true;
  /** Deprecated: `progress`. */
  readonly look?: true;
  readonly wait?: true;
  readonly json?: true;
}

export function addScrubCommand(program: Command): void {
  clusterCommand(program, 'scrub')
    .description(
      'find and repair damaged objects on the disks of one server, or of all; exit code 7 if some cannot be repaired',
    )
    .argument('[server]', 'id of a server')
    .option('--progress', 'start nothing, only show the progress')
    .addOption(new Option('--look', 'deprecated: --progress').hideHelp())
    .option('--wait', 'wait until it has ended')
    .option('--json', 'print it as JSON')
    .run(async (client, call, server: string | undefined, options: ScrubOptions) => {
      const wanted = server ?? null;
      let statuses =
        options.progress === true || options.look === true
          ? await client.admin.scrubs(wanted, call)
          : await client.admin.startScrubs(wanted, call);
      while (options.wait === true && Object.values(statuses).some((scrub) => scrub?.state === 'running')) {
        await systemWorld.sleep(POLL_MS, call);
        statuses = await client.admin.scrubs(wanted, call);
      }
      if (options.json === true) printJson(statuses);
      else printScrubs(statuses);
      if (Object.values(statuses).some((scrub) => (scrub?.unrepairable.length ?? 0) > 0))
        process.exitCode = EXIT_DEGRADED;
    });
}

function printScrubs(statuses: ScrubStatuses): void {
  const rows = Object.entries(statuses).map(([server, scrub]) =>
    scrub === null
      ? [server, 'unreachable', '-', '-', '-', '-', '-']
      : [
          server,
          describe(scrub),
          `${scrub.objects}`,
          formatBytes(scrub.bytes),
          `${scrub.damaged}`,
          `${scrub.repaired}`,
          `${scrub.unrepairable.length}`,
        ],
  );
  const header = ['SERVER', 'STATE', 'OBJECTS', 'READ', 'DAMAGED', 'REPAIRED', 'LEFT'];
  printTable(rows, header);
  for (const [server, scrub] of Object.entries(statuses)) {
    for (const { file, object, path } of scrub?.unrepairable ?? []) {
      const name = path === null ? `file ${file}` : printable(path);
      printLine(
        `Cannot repair object ${object} of ${name} on ${server}: no reachable server has an undamaged copy`,
      );
    }
  }
}

function describe(scrub: ScrubStatus): string {
  if (scrub.state === 'running') return 'running';
  return scrub.startedAt === null ? 'never ran' : `ended ${scrub.finishedAt ?? 'early'}`;
}
