import { join, resolve } from 'node:path';
import type { Command } from 'commander';
import { majority } from '../../base/quorum.ts';
import { DevCluster } from '../dev/dev-cluster.ts';
import type { ServerProcess } from '../dev/server-process.ts';
import { usageFailure } from '../terminal/failure.ts';
import { printJson, printLine, printTable } from '../terminal/output.ts';
import { EndSignal } from '../terminal/signals.ts';
import { durationOption, wholeNumber } from './cluster-command.ts';

const PORT_MAX = 65_535;
const SERVERS_MAX = 15;
const S3_PORT = 7480;

interface DevOptions {
  readonly servers: number;
  readonly port: number;
  readonly data?: string;
  readonly mount?: string;
  readonly lease: number;
  readonly clockSkew: number;
  readonly secure?: true;
  readonly s3?: true;
  readonly json?: true;
}

export function addDevCommand(program: Command): void {
  program
    .command('dev')
    .description('run a whole cluster on this machine, with a volume "main", until Ctrl-C')
    .option('--servers <count>', 'how many servers', wholeNumber(1, SERVERS_MAX), 3)
    .option(
      '--port <port>',
      'port of the first server; the others have the ports after it',
      wholeNumber(1, PORT_MAX),
      7401,
    )
    .option(
      '--data <directory>',
      'where the servers keep their data (default: a temporary one, removed at the end)',
    )
    .option('--mount <directory>', 'mount the volume there')
    .addOption(durationOption('--lease <duration>', 'how long a lease lasts', 2_000))
    .addOption(durationOption('--clock-skew <duration>', 'how far clocks may differ', 100))
    .option('--secure', 'with certificates and tokens, which are made in the folder of the data')
    .option('--s3', `with S3, on the ports from ${S3_PORT} on`)
    .option('--json', 'print one line of JSON as soon as everything is usable')
    .action(runDev);
}

async function runDev(options: DevOptions): Promise<void> {
  if (options.port + options.servers - 1 > PORT_MAX) {
    throw usageFailure(
      `Cannot use ${options.servers} ports from ${options.port} on: ${PORT_MAX} is the last one`,
    );
  }
  using end = new EndSignal();
  const cluster = await DevCluster.start({
    ports: Array.from({ length: options.servers }, (_, index) => options.port + index),
    data: options.data ?? null,
    leaseMs: options.lease,
    clockSkewMs: options.clockSkew,
    isSecure: options.secure === true,
    s3Ports:
      options.s3 === true ? Array.from({ length: options.servers }, (_, index) => S3_PORT + index) : [],
    onUnexpectedEnd: (server, how, servers) => {
      process.stderr.write(`leasehold: Server ${server.plan.id} ${how}; ${describeRemaining(servers)}\n`);
      process.stderr.write(
        `  To start it again, in a terminal of its own: npx leasehold server ${server.plan.argv.join(' ')}\n`,
      );
    },
  });
  try {
    if (options.mount !== undefined && !end.signal.aborted) await cluster.mount(resolve(options.mount));
    if (!end.signal.aborted) print(cluster, options);
    await end.wait();
  } finally {
    for (const { id, pid } of await cluster.stop())
      process.stderr.write(
        `leasehold: Server ${id} keeps running, because it was started elsewhere; to stop it: kill ${pid}\n`,
      );
  }
}

function describeRemaining(servers: readonly ServerProcess[]): string {
  const count = servers.filter(({ state }) => state !== 'dead').length;
  if (count >= majority(servers.length)) return 'the other servers continue';
  return `${count} of the ${servers.length} servers that were started here are left, fewer than a majority`;
}

function print(cluster: DevCluster, options: DevOptions): void {
  const mount = cluster.mounted?.directory ?? null;
  const servers = cluster.servers.map(({ plan, pid }) => ({
    id: plan.id,
    url: plan.url,
    pid,
    data: plan.data,
    ...(typeof plan.s3 === 'string' ? { s3: plan.s3 } : {}),
  }));
  if (options.json) {
    printJson({
      servers,
      mount,
      ...(cluster.credentials === null ? {} : { credentials: cluster.credentials }),
    });
    return;
  }
  const rows = servers.map(({ id, url, pid, data }) => [id, url, `${pid}`, data]);
  printTable(rows, ['SERVER', 'URL', 'PID', 'DATA']);
  printLine('');
  printLine(`Dashboard: ${servers[0]?.url}/`);
  if (servers[0]?.s3 !== undefined) printLine(`S3: ${s3Line(servers[0].s3, cluster.credentials)}`);
  printLine(
    `Volume "${DevCluster.VOLUME}" is ready${mount === null ? '' : `, mounted on ${mount}`}. Ctrl-C stops the cluster.`,
  );
  const defaults =
    cluster.urls.join(',') === 'http://127.0.0.1:7401,http://127.0.0.1:7402,http://127.0.0.1:7403';
  if (!defaults) printLine(`For other commands: export LEASEHOLD_SERVERS=${cluster.urls.join(',')}`);
  if (cluster.credentials === null) return;
  const own = join(cluster.credentials, 'admin');
  printLine(`And: export LEASEHOLD_CA=${join(own, 'ca.pem')} LEASEHOLD_TOKEN_FILE=${join(own, 'token')}`);
  printLine('Tokens of smaller roles are beside it, in "writer" and "reader".');
}

function s3Line(url: string, credentials: string | null): string {
  if (credentials === null) return `${url}, with any access key`;
  return `${url}, with the keys of "leasehold token s3 admin --tokens ${join(credentials, 'authority', 'tokens.json')}"`;
}
