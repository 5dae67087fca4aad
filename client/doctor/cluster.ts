import { lookup } from 'node:dns/promises';
import { networkInterfaces } from 'node:os';
import type { ClusterStatus, ServerStatus } from '../../wire/http-api.ts';
import { parseJsonObject } from '../../wire/json.ts';
import { systemWorld } from '../../world/system-world.ts';
import { formatDuration } from '../terminal/quantities.ts';
import { Access } from '../transport/access.ts';
import { ANSWER_MS, DoctorClient } from './doctor-client.ts';
import { type Finding, failed, ok, warning } from './finding.ts';
import { listenersOn } from './listeners.ts';

const DATE_RESOLUTION_MS = 1_000;

interface ServerReport {
  readonly url: string;
  readonly status: ServerStatus;
  /** By how much its wall clock is ahead of the local one, and the error bound; null if it reports no time. */
  readonly ahead: { readonly ms: number; readonly exactMs: number } | null;
}

/** Checks the servers, as this machine reaches them, and their clocks. */
export async function examineCluster(
  urls: readonly string[],
  version: string,
  access: Access = Access.NONE,
): Promise<Finding[]> {
  const client = new DoctorClient(access);
  try {
    return await examineThrough(urls, version, client);
  } finally {
    await client.close();
  }
}

async function examineThrough(
  urls: readonly string[],
  version: string,
  client: DoctorClient,
): Promise<Finding[]> {
  const reports = await Promise.all(urls.map((url) => askServer(url, client)));
  const answered = reports.filter((one): one is ServerReport => !('why' in one));
  const findings = reports.map((one) =>
    'why' in one
      ? failed(
          `server ${one.url}`,
          `it does not answer: ${one.why}`,
          'start it, or name the right address with --servers',
        )
      : examineServer(one, version),
  );
  const first = answered[0];
  if (first === undefined) {
    return [
      ...findings,
      failed('cluster', 'no server answers', '"leasehold server --help" says how one is started'),
    ];
  }
  const status = await ask<ClusterStatus>(`${first.url}/v1/status`, client);
  if ('why' in status) {
    return [...findings, warning('cluster', `its status is not available: ${status.why}`, 'try again')];
  }
  const { verdict, reasons, timing } = status.value;
  const words = reasons.join('; ');
  findings.push(
    verdict === 'healthy'
      ? ok('cluster', 'it is healthy')
      : (verdict === 'down' ? failed : warning)(
          'cluster',
          `it is ${verdict}: ${words}`,
          '"leasehold status" says more',
        ),
  );
  return [...findings, ...answered.map((one) => examineClocks(one, answered, timing.clockSkewMaxMs))];
}

function examineServer({ url, status }: ServerReport, version: string): Finding {
  const name = `server ${status.id}`;
  const running = status.version === undefined ? 'an unknown version' : `version ${status.version}`;
  const found = `${status.state} at ${url}, ${running}`;
  if (status.state === 'recovering') {
    return warning(
      name,
      `${found}, for ${formatDuration(status.recoveringMs)} more`,
      'wait until its recovery wait is over',
    );
  }
  if (status.state !== 'serving') {
    return failed(
      name,
      `${found}${status.failure === undefined ? '' : `: ${status.failure}`}`,
      'check its log',
    );
  }
  if (status.version !== undefined && status.version !== version) {
    return warning(name, `${found}; here it is ${version}`, 'run the same version everywhere');
  }
  return ok(name, found);
}

/** Compares a server's clock with those of the others, by their own measurements, and with the clock here. */
function examineClocks(
  { status, ahead }: ServerReport,
  all: readonly ServerReport[],
  skewMs: number,
): Finding {
  const name = `clock ${status.id}`;
  const offsets = Object.entries(status.clockOffsets).map(([peer, { offsetMs, errorMs }]) => {
    // Two servers' measurements of each other have opposite signs; the common part is the network delay.
    const back = all.find((one) => one.status.id === peer)?.status.clockOffsets[status.id];
    return { peer, offsetMs: back === undefined ? offsetMs : (offsetMs - back.offsetMs) / 2, errorMs };
  });
  const most = offsets.toSorted((a, b) => Math.abs(b.offsetMs) - Math.abs(a.offsetMs))[0];
  const among =
    most === undefined
      ? 'no other server is known to it'
      : `${most.peer} differs from it by ${formatDuration(Math.abs(most.offsetMs))} ± ${formatDuration(most.errorMs)}`;
  const here =
    ahead === null
      ? ''
      : Math.abs(ahead.ms) <= ahead.exactMs
        ? '; it agrees with the clock here'
        : `; it is ${formatDuration(Math.abs(ahead.ms))} ${ahead.ms > 0 ? 'ahead of' : 'behind'} the clock here`;
  // Between busy servers round trips take long, which makes measurements inexact.
  const isInexact = most !== undefined && most.errorMs > skewMs;
  const note = isInexact ? ', but the measurement is inexact while the servers are this busy' : '';
  const found = `${among}${here}; ${formatDuration(skewMs)} are allowed${note}`;
  const fix = 'synchronize the clocks (NTP, chrony)';
  if (status.state === 'clock-fault') return failed(name, found, fix);
  // A client's clock decides nothing; file times and logs are easier to read if it is right.
  const isOff = ahead !== null && Math.abs(ahead.ms) > skewMs + ahead.exactMs;
  const isFar = offsets.some(({ offsetMs, errorMs }) => Math.abs(offsetMs) - errorMs > skewMs);
  return isOff || isFar ? warning(name, found, fix) : ok(name, found);
}

/** Checks that no other program has the ports of the addresses that are here. @param access sent to hidden listeners */
export async function examinePorts(
  addresses: readonly string[],
  access: Access = Access.NONE,
): Promise<Finding[]> {
  const client = new DoctorClient(access);
  try {
    return await examinePortsThrough(addresses, client);
  } finally {
    await client.close();
  }
}

async function examinePortsThrough(addresses: readonly string[], client: DoctorClient): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const address of addresses) {
    const url = new URL(address.includes('://') ? address : `http://${address}`);
    const { hostname, port } = url;
    if (!(await isHere(hostname))) continue;
    const name = `port ${port}`;
    const listeners = await listenersOn(Number(port));
    const others = listeners.filter(
      ({ argv }) => !argv.includes('server') || !/leasehold/.test(argv.join(' ')),
    );
    const who = listeners
      .map(({ pid, argv }) =>
        pid === null
          ? 'a process that is not visible to this user'
          : `process ${pid} (${argv.slice(0, 4).join(' ')})`,
      )
      .join(', ');
    if (listeners.length === 0) findings.push(ok(name, 'it is free'));
    else if (others.length === 0) findings.push(ok(name, `used by a server: ${who}`));
    else {
      const isUnseen = others.every(({ pid }) => pid === null);
      // The listener is of another user or a container, so ask it.
      const server = isUnseen ? await askServer(url.origin, client) : null;
      if (server !== null && 'status' in server && typeof server.status.id === 'string') {
        findings.push(ok(name, `server ${server.status.id} has it`));
        continue;
      }
      findings.push(
        isUnseen
          ? warning(name, `it is used by ${who}`, 'run it as root to see the process')
          : failed(name, `it is used by ${who}`, 'end that process, or give the server another --listen'),
      );
    }
  }
  return findings;
}

async function isHere(host: string): Promise<boolean> {
  const bare = host.replace(/^\[|\]$/g, '');
  if (bare === '0.0.0.0' || bare === '::') return true;
  const own = Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address));
  // An unknown name is not this machine's.
  const address = await lookup(bare).then(
    (found) => found.address,
    () => null,
  );
  return address !== null && (own.includes(address) || /^127\./.test(address));
}

async function askServer(
  url: string,
  client: DoctorClient,
): Promise<ServerReport | { readonly url: string; readonly why: string }> {
  const answer = await ask<ServerStatus>(`${url}/v1/status/self`, client);
  if ('why' in answer) return { url, why: answer.why };
  return { url, status: answer.value, ahead: answer.ahead };
}

type Answer<Value> =
  | { readonly value: Value; readonly ahead: ServerReport['ahead'] }
  | { readonly why: string };

async function ask<Value>(url: string, client: DoctorClient): Promise<Answer<Value>> {
  try {
    const sentMs = systemWorld.wallMs();
    const response = await client.get(url);
    const receivedMs = systemWorld.wallMs();
    const value = parseJsonObject(await response.body.text());
    if (response.statusCode !== 200 || value === null) return { why: `HTTP status ${response.statusCode}` };
    const date = Date.parse(String(response.headers.date ?? ''));
    // Its time was cut to whole seconds somewhere between request and answer.
    const ms = date + DATE_RESOLUTION_MS / 2 - (sentMs + receivedMs) / 2;
    const exactMs = DATE_RESOLUTION_MS / 2 + (receivedMs - sentMs) / 2;
    return { value: value as Value, ahead: Number.isNaN(date) ? null : { ms, exactMs } };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const cause = error.message !== '' ? error.message : 'code' in error ? String(error.code) : error.name;
    return { why: error.name === 'TimeoutError' ? `nothing within ${formatDuration(ANSWER_MS)}` : cause };
  }
}
