import type { Command } from 'commander';
import { ServiceError } from '../../base/errors.ts';
import type { Finding } from '../../wire/http-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { located } from '../cluster/location.ts';
import { parseRemotePath } from '../cluster/remote-path.ts';
import { EXIT_DEGRADED } from '../terminal/failure.ts';
import { printable, printJson, printLine, printTable } from '../terminal/output.ts';
import { ReplicaReader } from '../transfer/replica-reader.ts';
import { type Resolved, resolveConflict } from '../transfer/resolve-conflict.ts';
import { type CallOptions, Exchanger } from '../transport/exchange.ts';
import { accessOf, clusterCommand } from './cluster-command.ts';

/** Findings are checked again after this, since files are created, moved and removed meanwhile. */
const RECHECK_MS = 2_000;

const REPLICA_MS = 10_000;

interface ResolveOptions {
  readonly keep: string;
  readonly json?: true;
}

interface Checked {
  readonly findings: readonly Finding[];
  readonly compared: number;
  readonly unreachable: readonly string[];
}

export function addResolveCommand(program: Command): void {
  clusterCommand(program, 'resolve')
    .description(
      'resolve a conflict of member sets found by "check": one history becomes the file, the others get other names',
    )
    .argument('<file>', 'VOLUME:/path')
    .requiredOption('--keep <server>', 'id of a server that has the history to keep')
    .option('--json', 'print it as JSON')
    .run(async (client, call, file: string, options: ResolveOptions, command: Command) => {
      const { servers } = await client.query({ kind: 'servers', counts: false }, call);
      const urls = new Map(servers.map(({ id, url }) => [id, url]));
      const access = accessOf(command);
      const readers: Exchanger[] = [];
      const readerOf = (server: string, inode: number): ReplicaReader => {
        const url = urls.get(server);
        if (url === undefined) throw new ServiceError('not-found', `There is no server ${server}`);
        const exchanger = new Exchanger(systemWorld, [url], REPLICA_MS, access);
        readers.push(exchanger);
        return new ReplicaReader(exchanger, inode);
      };
      try {
        const place = await located(client, parseRemotePath(file), call);
        const resolved = await resolveConflict(client, readerOf, place, options.keep, call);
        if (options.json === true) printJson(resolved);
        else printResolved(file, resolved);
      } finally {
        await Promise.all(readers.map((reader) => reader.close()));
      }
    });
}

function printResolved(file: string, { kept, others }: Resolved): void {
  printLine(`${printable(file)} now has the contents of server ${kept}`);
  for (const other of others) printLine(`Another history is stored as ${printable(other)}`);
}

export function addCheckCommand(program: Command): void {
  clusterCommand(program, 'check')
    .description(
      'compare the replicas of all servers with the catalog: files with two member sets for one view, contents that are not in the catalog; exit code 7 if there are any',
    )
    .option('--json', 'print it as JSON')
    .run(async (client, call, options: { readonly json?: true }) => {
      const checked = await check(client, call);
      if (options.json === true) printJson(checked);
      else print(checked);
      if (checked.findings.length > 0 || checked.unreachable.length > 0) process.exitCode = EXIT_DEGRADED;
    });
}

/** Compares all replicas with the catalog, twice. @returns the findings of both passes */
export async function check(client: ClusterClient, call?: CallOptions): Promise<Checked> {
  const first = await allPages(client, call);
  if (first.findings.length === 0) return first;
  await systemWorld.sleep(RECHECK_MS, call);
  const second = await allPages(client, call);
  const before = new Set(first.findings.map(keyOf));
  return { ...second, findings: second.findings.filter((finding) => before.has(keyOf(finding))) };
}

async function allPages(client: ClusterClient, call?: CallOptions): Promise<Checked> {
  const findings: Finding[] = [];
  const unreachable = new Set<string>();
  let compared = 0;
  for (let after: number | null = 0; after !== null; ) {
    const page = await client.admin.check(after, call);
    findings.push(...page.findings);
    for (const server of page.unreachable) unreachable.add(server);
    compared += page.compared;
    after = page.next;
  }
  return { findings, compared, unreachable: [...unreachable] };
}

function keyOf({ file, server, kind }: Finding): string {
  return `${file} ${server} ${kind}`;
}

const KINDS: Readonly<Record<Finding['kind'], string>> = {
  members: 'two member sets',
  unnamed: 'not in the catalog',
  'catalog-behind': 'newer than the catalog',
  'catalog-ahead': 'older than the catalog',
};

function print({ findings, compared, unreachable }: Checked): void {
  if (findings.length > 0) {
    const rows = findings.map(({ file, path, server, kind, what }) => {
      return [`${file}`, path === null ? '-' : printable(path), server, KINDS[kind], what];
    });
    printTable(rows, ['FILE', 'PATH', 'SERVER', 'FOUND', 'WHAT']);
  }
  for (const server of unreachable)
    printLine(`Server ${server} has not answered: its replicas are not compared`);
  printLine(`${compared} replicas compared, ${findings.length} differences`);
}
