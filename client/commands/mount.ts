import type { Command } from 'commander';
import { CommandFailure, EXIT_FAILED } from '../failure.ts';
import { mountVolume, unmountDirectory } from '../mount.ts';
import { printJson } from '../output.ts';
import { addClusterOptions, duration, serversOf, withClient } from './cluster-command.ts';
import { volumeName } from './volume.ts';

interface MountCommandOptions {
  readonly opTimeout?: number;
  readonly log?: string;
  /** False with --no-xattr. */
  readonly xattr: boolean;
  readonly json?: true;
}

export function addMountCommands(program: Command): void {
  addClusterOptions(program.command('mount'))
    .description('mount a volume; returns when the mount is usable')
    .argument('<volume>', 'name of the volume', volumeName)
    .argument('<directory>', 'where to mount it; a mount left dead there by a crash is replaced')
    .option('--op-timeout <duration>', 'how long a call on the mount may take before it fails', duration)
    .option('--no-xattr', 'without extended attributes, which make every write cost more')
    .option(
      '--log <file>',
      'where the process of the mount writes its log (default: in the folder for temporary files)',
    )
    .option('--json', 'print directory, process and log as JSON')
    .action(async (volume: string, directory: string, options: MountCommandOptions, command: Command) => {
      await withClient(command, async (client, call) => {
        // Asked here, so that the answer does not have to come through the mount's process.
        await client.query({ kind: 'volume', name: volume }, call);
      });
      const mounted = await mountVolume({
        servers: serversOf(command),
        volume,
        directory,
        ...(options.opTimeout === undefined ? {} : { operationTimeoutMs: options.opTimeout }),
        ...(options.log === undefined ? {} : { log: options.log }),
        ...(options.xattr ? {} : { extra: ['--no-xattr'] }),
      });
      if (options.json) printJson({ volume, ...mounted });
    });

  program
    .command('umount')
    .description('remove a mount; returns when all that was written there is stored')
    .argument('<directory>', 'where it is mounted')
    .option('--force', 'even if it is in use')
    .option('--wait <duration>', 'how long to wait until everything is stored (default: 60s)', duration)
    .action(async (directory: string, options: { force?: true; wait?: number }) => {
      if (process.platform !== 'linux')
        throw new CommandFailure(EXIT_FAILED, 'Cannot unmount: this works on Linux only');
      await unmountDirectory(directory, {
        force: options.force === true,
        ...(options.wait === undefined ? {} : { timeoutMs: options.wait }),
      });
    });
}
