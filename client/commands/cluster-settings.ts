import { type Command, InvalidArgumentError } from 'commander';
import type { ClusterSettings } from '../../wire/catalog-api.ts';
import { generalFailure } from '../terminal/failure.ts';
import { printJson, printLine } from '../terminal/output.ts';
import { clusterCommand } from './cluster-command.ts';

interface SetOptions {
  readonly catalogReplicas: number | 'auto';
  readonly json?: true;
}

/** Settings of the whole cluster, which the catalog stores. */
export function addClusterSettingsCommands(program: Command): void {
  const cluster = program.command('cluster').description('show and change settings of the cluster');

  clusterCommand(cluster, 'show', 'show the settings of the cluster')
    .option('--json', 'print them as JSON')
    .run(async (client, call, options: { readonly json?: true }) => {
      const { settings } = await client.query({ kind: 'servers', counts: false }, call);
      if (settings === undefined)
        throw generalFailure(
          'The cluster has no settings',
          'its servers run an earlier release: upgrade them',
        );
      printSettings(settings, options);
    });

  clusterCommand(cluster, 'set', 'change settings of the cluster')
    .requiredOption(
      '--catalog-replicas <count>',
      'servers that hold the catalog: 3, 5 or 7; auto: 3, and 5 from five servers on',
      catalogReplicas,
    )
    .option('--json', 'print the settings as JSON')
    .run(async (client, call, { catalogReplicas, ...options }: SetOptions) => {
      const count = catalogReplicas === 'auto' ? null : catalogReplicas;
      const { settings } = await client.command({ kind: 'cluster-set', catalogReplicas: count }, call);
      printSettings(settings, options);
    });
}

function printSettings({ catalogReplicas }: ClusterSettings, { json }: { readonly json?: true }): void {
  if (json) printJson({ catalogReplicas: catalogReplicas ?? 'auto' });
  else printLine(`Catalog replicas: ${catalogReplicas ?? 'auto (3, and 5 from five servers on)'}`);
}

function catalogReplicas(text: string): number | 'auto' {
  if (text === 'auto') return text;
  if (!/^[357]$/.test(text)) throw new InvalidArgumentError('It is 3, 5, 7 or auto.');
  return Number(text);
}
