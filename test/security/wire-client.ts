import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, type TLSSocket } from 'node:tls';
import { Agent, request } from 'undici';
import type { SecureCluster } from './secure-cluster.ts';

/** A connection without further bytes is closed by this side. */
const SILENT_MS = 3_000;

export interface Question {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** Sent as JSON. */
  readonly json?: unknown;
  /** Which server; default `s1`. */
  readonly at?: string;
  /** Certificate and key of a client that has them, as PEM. */
  readonly shown?: { readonly cert: string; readonly key: string };
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}

const agents = new Map<string, Agent>();

/** One request over HTTP, with exactly the given headers. */
export async function ask(
  cluster: SecureCluster,
  method: string,
  path: string,
  { headers = {}, body, json, at = 's1', shown }: Question = {},
): Promise<Answer> {
  const response = await request(`${cluster.url(at)}${path}`, {
    method: method as 'GET',
    dispatcher: agentOf(cluster, shown),
    headers: { ...(json === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    body: json === undefined ? (body ?? null) : JSON.stringify(json),
  });
  return { status: response.statusCode, headers: response.headers, text: await response.body.text() };
}

/** Bytes on a separate connection, unchanged. */
export async function send(cluster: SecureCluster, text: string, at = 's1'): Promise<TLSSocket> {
  const socket = connect({
    port: cluster.ports.get(at) as number,
    host: '127.0.0.1',
    ca: readFileSync(cluster.authority.ca),
  });
  await once(socket, 'secureConnect');
  socket.write(text);
  return socket;
}

/** Sends bytes and reads until the other side sends nothing more. */
export async function converse(cluster: SecureCluster, text: string): Promise<string> {
  const socket = await send(cluster, text);
  let heard = '';
  socket.on('data', (chunk: Buffer) => {
    heard += chunk.toString('latin1');
  });
  socket.on('error', () => undefined);
  socket.setTimeout(SILENT_MS, () => socket.destroy());
  await once(socket, 'close');
  return heard;
}

export async function close(): Promise<void> {
  await Promise.all([...agents.values()].map((agent) => agent.close()));
  agents.clear();
}

function agentOf(cluster: SecureCluster, shown: Question['shown']): Agent {
  const key = shown?.cert ?? '';
  const known = agents.get(key);
  if (known !== undefined) return known;
  const agent = new Agent({ connect: { ca: readFileSync(cluster.authority.ca), ...shown } });
  agents.set(key, agent);
  return agent;
}
