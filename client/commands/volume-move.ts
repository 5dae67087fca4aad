import type { Command } from 'commander';
import type { ListedCatalog } from '../../wire/volume-catalogs.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { preconditionFailure } from '../terminal/failure.ts';
import { printLine } from '../terminal/output.ts';
import { type AbortOptions, clusterCommand } from './cluster-command.ts';

const POLL_MS = 500;

/** @param name of the argument's volume */
export function addOwnCatalogCommand(volume: Command, name: (text: string) => string): void {
  clusterCommand(volume, 'own-catalog', 'move a volume out of the root catalog, to a catalog of its own')
    .argument('<name>', 'name of the volume', name)
    .option('--abort', 'end a move that is under way: the volume stays in the root catalog')
    .run(async (client, call, name: string, { abort }: { readonly abort?: true }) => {
      if (abort) return abortMove(client, call, name);
      const { catalog } = await client.command({ kind: 'volume-move', name }, call);
      const { members } = await whenMoved(client, call, catalog);
      printLine(`The volume ${name} has a catalog of its own, on ${members.join(', ')}`);
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
  const { inodes } = (await client.query({ kind: 'volume', name }, call)).volume;
  for (let shown = ''; ; ) {
    const { catalogs } = await client.query({ kind: 'catalogs' }, call);
    const row = catalogs.find((one) => one.number === number);
    if (row?.state === 'removed')
      throw preconditionFailure(
        `The volume ${name} stays in the root catalog. ${row.refused?.why ?? 'Its move was ended'}`,
      );
    if (row !== undefined && row.moving === undefined) return row;
    const text = await progressText(client, call, number, inodes);
    if (text !== shown) process.stderr.write(`${text}\n`);
    shown = text;
    await systemWorld.sleep(POLL_MS, call);
  }
}

async function progressText(
  client: ClusterClient,
  call: AbortOptions,
  number: number,
  inodes: number,
): Promise<string> {
  const { catalogs = [] } = await client.status(call);
  const { phase, copied = 0 } = catalogs.find((one) => one.number === number)?.moving ?? {};
  switch (phase) {
    case 'numbered':
      return `Changes wait: ${Math.min(copied, inodes)} of ${inodes} files and directories are copied`;
    case 'frozen':
      return 'Changes wait: the inode numbers are recorded';
    default:
      return 'Waiting until clients drop what they cache of the volume';
  }
}
