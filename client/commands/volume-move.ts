import type { Command } from 'commander';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import type { RemotePath } from '../cluster/remote-path.ts';
import { preconditionFailure } from '../terminal/failure.ts';
import { printLine } from '../terminal/output.ts';
import { type AbortOptions, clusterCommand } from './cluster-command.ts';

const POLL_MS = 500;

interface AbortFlag {
  readonly abort?: true;
}

/** @param name of the argument's volume */
export function addOwnCatalogCommand(volume: Command, name: (text: string) => string): void {
  clusterCommand(volume, 'own-catalog', 'move a volume out of the root catalog, to a catalog of its own')
    .argument('<name>', 'name of the volume', name)
    .option('--abort', 'end a move that is under way: the volume stays in the root catalog')
    .run(async (client, call, name: string, { abort }: AbortFlag) => {
      if (abort) return abortMove(client, call, name);
      const { catalog } = await client.command({ kind: 'volume-move', name }, call);
      const { members } = await whenMoved(client, call, catalog);
      printLine(`The volume ${name} has a catalog of its own, on ${members.join(', ')}`);
    });
}

/** @param place of the argument's directory */
export function addSplitCommand(
  volume: Command,
  name: (text: string) => string,
  place: (text: string) => RemotePath,
): void {
  clusterCommand(volume, 'split', 'make a directory of the root catalog a volume with a catalog of its own')
    .argument('<directory>', 'VOLUME:/path', place)
    .argument('<name>', 'name of the new volume, which is attached there', name)
    .option('--abort', 'end a split that is under way: the directory stays what it is')
    .run(async (client, call, { volume, path }: RemotePath, name: string, { abort }: AbortFlag) => {
      if (abort) return abortMove(client, call, name);
      const { catalog } = await client.command({ kind: 'volume-split', name, volume, path }, call);
      const { members } = await whenMoved(client, call, catalog);
      printLine(
        `${volume}:${path} is the volume ${name} now, with a catalog of its own on ${members.join(', ')}`,
      );
    });
}

async function abortMove(client: ClusterClient, call: AbortOptions, name: string): Promise<void> {
  const { catalog } = await client.command({ kind: 'volume-move-abort', name }, call);
  if (catalog === undefined) throw preconditionFailure(`The volume ${name} does not move`);
  printLine(`The volume ${name} stays in the root catalog`);
}

/** Shows the progress until the volume has moved. @throws CommandFailure if the move is ended */
async function whenMoved(
  client: ClusterClient,
  call: AbortOptions,
  { number, name }: ListedCatalog,
): Promise<ListedCatalog> {
  for (let shown = ''; ; ) {
    const { catalogs } = await client.query({ kind: 'catalogs' }, call);
    const row = catalogs.find((one) => one.number === number);
    if (row?.state === 'removed')
      throw preconditionFailure(
        `The volume ${name} does not get a catalog of its own. ${row.refused?.why ?? 'Its move was ended'}`,
      );
    if (row !== undefined && row.moving === undefined) return row;
    const text = await progressText(client, call, { number, name });
    if (text !== shown) process.stderr.write(`${text}\n`);
    shown = text;
    await systemWorld.sleep(POLL_MS, call);
  }
}

async function progressText(
  client: ClusterClient,
  call: AbortOptions,
  { number, name }: Pick<ListedCatalog, 'number' | 'name'>,
): Promise<string> {
  const { catalogs = [] } = await client.status(call);
  const { phase, copied = 0 } = catalogs.find((one) => one.number === number)?.moving ?? {};
  switch (phase) {
    case 'splitting':
      return 'Changes wait for what becomes the volume';
    case 'numbered': {
      const { inodes } = (await client.query({ kind: 'volume', name }, call)).volume;
      return `Changes wait: ${Math.min(copied, inodes)} of ${inodes} files and directories are copied`;
    }
    case 'frozen':
      return 'Changes wait: the inode numbers are recorded';
    default:
      return 'Waiting until clients drop what they cache of the volume';
  }
}
