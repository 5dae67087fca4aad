import { type Command, InvalidArgumentError } from 'commander';
import { formatTable, printJson, printLine } from '../output.ts';
import { formatBytes } from '../quantities.ts';
import { isVolumeName } from '../remote-path.ts';
import { addClusterOptions, size, wholeNumber, withClient } from './cluster-command.ts';

const OBJECT_BYTES_MIN = 4096;
const OBJECT_BYTES_MAX = 4 * 1024 * 1024;

interface CreateOptions {
  readonly replicas: number;
  readonly objectSize: number;
  readonly json?: true;
}

export function addVolumeCommands(program: Command): void {
  const volume = program.command('volume').description('create, list and remove volumes');

  addClusterOptions(volume.command('create'))
    .description('create a volume')
    .argument('<name>', 'name of the volume: a-z, 0-9, ".", "_", "-"', volumeName)
    .option('--replicas <count>', 'servers that hold each file', wholeNumber(1, 15), 3)
    .option('--object-size <size>', 'size of the pieces that files are stored in', objectSize, 128 * 1024)
    .option('--json', 'print the volume as JSON')
    .action(async (name: string, options: CreateOptions, command: Command) => {
      await withClient(command, async (client, call) => {
        const { volume } = await client.command(
          { kind: 'volume-create', name, replicas: options.replicas, objectBytes: options.objectSize },
          call,
        );
        if (options.json) printJson(volume);
        else printLine(`Created the volume ${volume.name} with ${volume.replicas} replicas of each file`);
      });
    });

  addClusterOptions(volume.command('ls'))
    .description('list the volumes')
    .option('--json', 'print the volumes as JSON')
    .action(async (options: { readonly json?: true }, command: Command) => {
      await withClient(command, async (client, call) => {
        const { volumes } = await client.query({ kind: 'volumes' }, call);
        if (options.json) return printJson({ volumes });
        const rows = volumes.map((one) => [
          one.name,
          `${one.replicas}`,
          formatBytes(one.objectBytes),
          `${one.inodes}`,
          formatBytes(one.usedBytes),
        ]);
        const table = formatTable([['NAME', 'REPLICAS', 'OBJECT SIZE', 'INODES', 'USED'], ...rows]);
        for (const line of table) printLine(line);
      });
    });

  addClusterOptions(volume.command('rm'))
    .description('remove an empty volume')
    .argument('<name>', 'name of the volume', volumeName)
    .action(async (name: string, _options: unknown, command: Command) => {
      await withClient(command, async (client, call) => {
        await client.command({ kind: 'volume-remove', name }, call);
      });
    });
}

export function volumeName(text: string): string {
  if (!isVolumeName(text)) {
    throw new InvalidArgumentError(
      'A volume has 1 to 63 of a-z, 0-9, ".", "_" and "-", a letter or digit first.',
    );
  }
  return text;
}

function objectSize(text: string): number {
  const bytes = size(text);
  if (bytes < OBJECT_BYTES_MIN || bytes > OBJECT_BYTES_MAX) {
    throw new InvalidArgumentError('It must be from 4KiB to 4MiB.');
  }
  return bytes;
}
