import type { Command } from 'commander';
import type { VolumeInfo } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { printJson, printLine } from '../terminal/output.ts';
import { type AbortOptions, clusterCommand } from './cluster-command.ts';
import { type SnapshotName, snapshotName } from './snapshot-name.ts';

const POLL_MS = 500;

interface CloneOptions {
  readonly json?: true;
}

interface FlattenOptions {
  readonly wait: boolean;
}

/** @param name parses the name of a volume */
export function addCloneCommands(volume: Command, name: (text: string) => string): void {
  clusterCommand(volume, 'clone')
    .description('create a volume that begins as the tree of a snapshot, at once, and can be changed')
    .argument('<snapshot>', 'VOLUME@NAME', snapshotName)
    .argument('<name>', 'name of the new volume', name)
    .option('--json', 'print the volume as JSON')
    .run(async (client, call, from: SnapshotName, name: string, { json }: CloneOptions) => {
      const { volume: source, name: snapshot } = from;
      await client.command({ kind: 'clone-create', name, volume: source, snapshot }, call);
      const { volume } = await client.query({ kind: 'volume', name }, call);
      if (json) return printJson(volume);
      printLine(`Created the volume ${name}, a clone of ${source}@${snapshot}`);
    });

  clusterCommand(volume, 'flatten')
    .description('copy what a clone shares with its snapshot, so that the snapshot can be removed')
    .argument('<name>', 'name of the volume', name)
    .option('--no-wait', 'do not wait until all is copied, which continues in the background')
    .run(async (client, call, name: string, { wait }: FlattenOptions) => {
      await client.command({ kind: 'clone-flatten', name }, call);
      if (wait) await whenFlat(client, name, call);
    });
}

/** Shows the progress until the volume needs no snapshot, which continues if this command ends. */
async function whenFlat(client: ClusterClient, name: string, call: AbortOptions): Promise<void> {
  for (let shown = ''; ; ) {
    const { volume } = await client.query({ kind: 'volume', name }, call);
    if (volume.clone === undefined) return printLine(`The volume ${name} needs no snapshot`);
    const text = `${volume.clone.unfilled} directories and files are known that are still to be copied`;
    if (text !== shown) process.stderr.write(`${text}\n`);
    shown = text;
    await systemWorld.sleep(POLL_MS, call);
  }
}

/** @returns of which snapshot the volume is a clone, for lists */
export function cloneText({ clone }: VolumeInfo): string {
  if (clone === undefined) return '–';
  const { source, snapshot, flattens } = clone;
  return `${source}@${snapshot}${flattens ? '; being copied' : ''}`;
}
