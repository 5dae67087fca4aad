/** Starts mounts for a plugin in another container, and outlives it. */
import { createServer, type Server, type Socket } from 'node:net';
import { ServiceError } from '../../base/errors.ts';
import { CommandFailure } from '../terminal/failure.ts';
import { statusOf } from './call-failure.ts';
import type { LaunchAnswer, Mounter, MountOrder } from './mounter.ts';
import { listenAt } from './socket-file.ts';

const ORDER_CHARS_MAX = 64 * 1024;
const IDLE_TIMEOUT_MS = 60_000;

export type Log = (message: string, fields?: Readonly<Record<string, unknown>>) => void;

/** Listens at a socket that only this user can open. @returns the server */
export async function startLauncher(socket: string, mounter: Mounter, log: Log): Promise<Server> {
  // The plugin waits for the answer on a connection of which it has ended no side.
  const server = createServer((connection) => {
    connection.on('error', (error) => log('a connection failed', { error: error.message }));
    connection.setTimeout(IDLE_TIMEOUT_MS, () => connection.destroy());
    void serve(connection, mounter, log);
  });
  await listenAt(socket, (path) => new Promise((resolve) => server.listen(path, () => resolve())));
  return server;
}

async function serve(connection: Socket, mounter: Mounter, log: Log): Promise<void> {
  try {
    const order = parseOrder(await readLine(connection));
    // Mounting has limits of its own.
    connection.setTimeout(0);
    const answer = await launch(order, mounter);
    log('mount', { directory: order.directory, tree: order.tree, ...answer });
    connection.end(`${JSON.stringify(answer)}\n`);
  } catch (error) {
    const { message } = statusOf(error);
    log('an order was refused', { error: message });
    const answer: LaunchAnswer = { kind: 'refused', code: 'bad-request', message };
    if (!connection.destroyed) connection.end(`${JSON.stringify(answer)}\n`);
  }
}

async function launch(order: MountOrder, mounter: Mounter): Promise<LaunchAnswer> {
  try {
    await mounter.mount(order);
    return { kind: 'mounted' };
  } catch (error) {
    if (error instanceof ServiceError) return { kind: 'refused', code: error.code, message: error.message };
    if (error instanceof CommandFailure)
      return { kind: 'failed', exit: error.exit, message: error.message, hint: error.hint };
    return { kind: 'failed', exit: 1, message: statusOf(error).message, hint: '' };
  }
}

async function readLine(connection: Socket): Promise<string> {
  let text = '';
  // The connection stays open for the answer when the loop ends.
  for await (const chunk of connection.setEncoding('utf8').iterator({ destroyOnReturn: false })) {
    text += chunk;
    const end = text.indexOf('\n');
    if (end !== -1) return text.slice(0, end);
    if (text.length > ORDER_CHARS_MAX) break;
  }
  throw new ServiceError('bad-request', 'Cannot read an order: it is no line of JSON');
}

function parseOrder(line: string): MountOrder {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new ServiceError('bad-request', 'Cannot read an order: it is no JSON', {}, { cause: error });
  }
  const order = value as Partial<MountOrder> | null;
  const areTexts = (all: unknown): boolean =>
    Array.isArray(all) && all.every((one) => typeof one === 'string');
  const isOrder =
    typeof order?.tree === 'string' &&
    typeof order.path === 'string' &&
    typeof order.directory === 'string' &&
    order.directory.startsWith('/') &&
    areTexts(order.servers) &&
    areTexts(order.options) &&
    typeof order.access === 'object' &&
    order.access !== null &&
    areTexts(Object.values(order.access));
  if (!isOrder)
    throw new ServiceError('bad-request', 'Cannot read an order: a field is missing or malformed');
  return order as MountOrder;
}
