import type { Command } from 'commander';
import type { Attributes, CommandOf } from '../../wire/catalog-api.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { fileClassOf } from '../cluster/file-class.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { usageFailure } from '../terminal/failure.ts';
import { printJson, printLine, printTable } from '../terminal/output.ts';
import type { CallOptions } from '../transport/exchange.ts';
import { clusterCommand, wholeNumber } from './cluster-command.ts';
import { LABELS, type PlacementOptions, placementOf, placementText, ZONES } from './placement-options.ts';

/** Entries that get the class of their directory by one command. */
const PAGE = 500;

interface SetOptions extends PlacementOptions {
  readonly replicas?: number;
  readonly recursive?: true;
  readonly force?: true;
}

const RECURSIVE = ['-r, --recursive', 'also for what is there already'] as const;

export function addPlacementCommands(program: Command): void {
  const placement = program
    .command('placement')
    .description('which servers hold the files of a directory, instead of those of its volume');

  clusterCommand(placement, 'set', 'set the placement class of what is created in a directory from now on')
    .argument('<path>', 'VOLUME:/directory')
    .option(...LABELS)
    .option(...ZONES)
    .option(
      '--replicas <count>',
      'servers that hold each file; without it, as the volume',
      wholeNumber(1, 15),
    )
    .option(...RECURSIVE)
    .option('--force', 'allow fewer servers than replicas')
    .run(async (client, call, path: string, options: SetOptions) => {
      const { labels, zones, replicas } = { ...placementOf(options), replicas: options.replicas };
      if (labels === undefined && zones === undefined && replicas === undefined)
        throw usageFailure('Nothing to set: give --labels, --zones or --replicas');
      const wanted = { labels: labels ?? [], zones: zones ?? [], replicas: replicas ?? null };
      await change(client, path, wanted, options, call);
      await show(client, path, call);
    });

  clusterCommand(placement, 'get', 'show the placement class of a file or directory, and where it is set')
    .argument('<path>', 'VOLUME:/path')
    .option('--json', 'print it as JSON')
    .run(async (client, call, path: string, options: { readonly json?: true }) => {
      if (!options.json) return show(client, path, call);
      printJson(await fileClassOf(client, await attributesAt(client, path, call), call));
    });

  clusterCommand(
    placement,
    'clear',
    'remove the placement class of a directory: it then has that of its parent',
  )
    .argument('<path>', 'VOLUME:/directory')
    .option(...RECURSIVE)
    .run(async (client, call, path: string, options: Pick<SetOptions, 'recursive'>) => {
      await change(client, path, null, options, call);
      await show(client, path, call);
    });

  clusterCommand(placement, 'ls', 'list the directories that have a placement class')
    .option('--json', 'print them as JSON')
    .run(async (client, call, options: { readonly json?: true }) => {
      const { classes } = await client.query({ kind: 'placement-classes', paths: true }, call);
      if (options.json) return printJson({ classes });
      const rows = classes.map((one) => [
        `${one.volume}:${one.path ?? ''}`,
        one.replicas === undefined ? '–' : `${one.replicas}`,
        placementText(one),
      ]);
      printTable(rows, ['DIRECTORY', 'REPLICAS', 'SERVERS']);
    });
}

async function change(
  client: ClusterClient,
  path: string,
  wanted: CommandOf<'set-placement'>['class'],
  { recursive, force }: Pick<SetOptions, 'recursive' | 'force'>,
  call: CallOptions,
): Promise<void> {
  const { volume, inode } = await attributesAt(client, path, call);
  await client.useVolume(volume, call);
  const forced = force === undefined ? {} : { force };
  await client.command({ kind: 'set-placement', inode, class: wanted, ...forced }, call);
  if (recursive) await inherit(client, inode, call);
}

/** Gives the class of a directory to all below, except to directories with a class of their own, and what they hold. */
async function inherit(client: ClusterClient, top: number, call: CallOptions): Promise<void> {
  const directories = [top];
  for (let inode = directories.pop(); inode !== undefined; inode = directories.pop()) {
    for (let after: string | null = ''; after !== null; ) {
      const page: { readonly directories: readonly number[]; readonly next: string | null } =
        await client.command({ kind: 'inherit-placement', inode, after, countMax: PAGE }, call);
      directories.push(...page.directories);
      after = page.next;
    }
  }
}

async function show(client: ClusterClient, path: string, call: CallOptions): Promise<void> {
  const { replicas, directory, ...servers } = await fileClassOf(
    client,
    await attributesAt(client, path, call),
    call,
  );
  const where = directory === null ? 'as its volume' : `set at ${directory}`;
  const text = placementText(servers);
  printLine(
    `${path}: ${replicas} replicas, on ${text === '–' ? 'any servers' : `servers with ${text}`}; ${where}`,
  );
}

async function attributesAt(client: ClusterClient, path: string, call: CallOptions): Promise<Attributes> {
  const place = await located(client, parseRemotePath(path), call);
  const query = { kind: 'resolve', volume: place.volume, path: place.path, follow: true } as const;
  return (await client.query(query, call)).attributes;
}
