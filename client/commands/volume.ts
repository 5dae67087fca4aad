import { type Command, InvalidArgumentError, Option } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { Policy } from '../../wire/catalog-api.ts';
import { CommandFailure, EXIT_USAGE } from '../failure.ts';
import { formatTable, printJson, printLine } from '../output.ts';
import { formatBytes } from '../quantities.ts';
import { isVolumeName } from '../remote-path.ts';
import { addClusterOptions, size, wholeNumber, withClient } from './cluster-command.ts';

const OBJECT_BYTES_MIN = 4096;
const OBJECT_BYTES_MAX = 4 * 1024 * 1024;

interface CreateOptions {
  readonly replicas: number;
  readonly objectSize: number;
  readonly policy: Policy;
  readonly force?: true;
  readonly ifNotExists?: true;
  readonly json?: true;
}

interface SetOptions {
  readonly replicas?: number;
  readonly policy?: Policy;
  readonly force?: true;
  readonly json?: true;
}

const POLICIES: readonly Policy[] = ['quorum', 'all', 'read-only'];

function policyOption(): Option {
  return new Option('--policy <policy>', 'who must have a change of a file before it is answered').choices(
    POLICIES,
  );
}

export function addVolumeCommands(program: Command): void {
  const volume = program.command('volume').description('create, list and remove volumes');

  addClusterOptions(volume.command('create'))
    .description('create a volume')
    .argument('<name>', 'name of the volume: a-z, 0-9, ".", "_", "-"', volumeName)
    .option('--replicas <count>', 'servers that hold each file', wholeNumber(1, 15), 3)
    .option('--object-size <size>', 'size of the pieces that files are stored in', objectSize, 128 * 1024)
    .addOption(policyOption().default('quorum'))
    .option('--force', 'also if there are fewer servers than replicas')
    .option('--if-not-exists', 'it is no error if there is one of that name, which stays as it is')
    .option('--json', 'print the volume as JSON')
    .action(async (name: string, options: CreateOptions, command: Command) => {
      await withClient(command, async (client, call) => {
        const { replicas, objectSize: objectBytes, policy, force = false } = options;
        const { volume, created } = await client
          .command({ kind: 'volume-create', name, replicas, objectBytes, policy, force }, call)
          .then(
            (result) => ({ ...result, created: true }),
            async (error: unknown) => {
              if (!options.ifNotExists || !(error instanceof ServiceError) || error.code !== 'exists')
                throw error;
              return { ...(await client.query({ kind: 'volume', name }, call)), created: false };
            },
          );
        if (options.json) printJson(volume);
        else if (!created) printLine(`There is a volume ${name} already`);
        else printLine(`Created the volume ${volume.name} with ${volume.replicas} replicas of each file`);
      });
    });

  addClusterOptions(volume.command('set'))
    .description('change how many replicas the files of a volume have, or the policy of files to come')
    .argument('<name>', 'name of the volume', volumeName)
    .option(
      '--replicas <count>',
      'servers that hold each file; files that are there follow',
      wholeNumber(1, 15),
    )
    .addOption(policyOption())
    .option('--force', 'also if there are fewer servers than replicas')
    .option('--json', 'print the volume as JSON')
    .action(async (name: string, options: SetOptions, command: Command) => {
      const { json, ...changes } = options;
      if (changes.replicas === undefined && changes.policy === undefined) {
        throw new CommandFailure(EXIT_USAGE, 'Nothing to change: give --replicas or --policy');
      }
      await withClient(command, async (client, call) => {
        const { volume } = await client.command({ kind: 'volume-set', name, ...changes }, call);
        if (json) return printJson(volume);
        printLine(`The volume ${name} has ${volume.replicas} replicas of each file, policy ${volume.policy}`);
        if (changes.replicas !== undefined) printLine('"leasehold server ls" shows how far its files are');
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
          one.policy,
        ]);
        const table = formatTable([['NAME', 'REPLICAS', 'OBJECT SIZE', 'INODES', 'USED', 'POLICY'], ...rows]);
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
