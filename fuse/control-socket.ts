import { createServer, type Socket } from 'node:net';
import {
  CONTROL_LINE_CHARS_MAX,
  type ControlAnswer,
  type ControlRequest,
} from '../client/mounts/mount-control.ts';
import { errnoName, messageOf } from './errno.ts';
import type { Mounted } from './mount.ts';
import type { Log } from './transport.ts';

/**
 * Answers requests of `leasehold remount`, one by one. Only root and the user of this process can connect: no other
 * user can enter the socket's folder. Without a socket the mount works, and logs the reason.
 * @param readOnlyWhy why the mount cannot be made read-write; null if it can
 * @returns closes the socket and removes it
 */
export async function listenForControl(
  path: Promise<string>,
  mounted: Pick<Mounted, 'remount'>,
  readOnlyWhy: string | null,
  log: Log,
): Promise<() => void> {
  const failed = (error: unknown): void => {
    log('warn', 'leasehold remount cannot reach this mount: it has no socket', { error: messageOf(error) });
  };
  let last: Promise<unknown> = Promise.resolve();
  const server = createServer((connection) => {
    connection.on('error', (error) =>
      log('debug', 'a client of the control socket has disconnected', { error: error.message }),
    );
    readLine(connection, (line) => {
      const answered = last.then(() => answerOf(line));
      last = answered.then((answer) => {
        log('info', 'a remount was requested', { request: line, ...answer });
        connection.end(`${JSON.stringify(answer)}\n`);
      });
    });
  });
  const answerOf = async (line: string): Promise<ControlAnswer> => {
    const request = requestOf(line);
    if (request === null) return { kind: 'malformed', message: 'The mount does not know this request' };
    if (readOnlyWhy !== null)
      return request.mode === 'ro' ? { kind: 'done' } : { kind: 'not-allowed', message: readOnlyWhy };
    try {
      await mounted.remount(request.mode, request.force);
      return { kind: 'done' };
    } catch (error) {
      const kind = errnoName(error) === 'EBUSY' ? 'busy' : 'not-stored';
      return { kind, message: messageOf(error) };
    }
  };
  server.on('error', failed);
  // Unreferenced, since the process must end with the mount.
  await path.then((known) => server.listen(known).unref()).catch(failed);
  return () => server.close();
}

function readLine(connection: Socket, use: (line: string) => void): void {
  let text = '';
  let isRead = false;
  connection.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
    const end = text.indexOf('\n');
    if (end === -1 && text.length > CONTROL_LINE_CHARS_MAX) connection.destroy();
    if (end === -1 || isRead) return;
    isRead = true;
    use(text.slice(0, end));
  });
}

/** @returns null if this release does not know the request */
function requestOf(line: string): ControlRequest | null {
  let request: Partial<ControlRequest> | null;
  try {
    request = JSON.parse(line) as Partial<ControlRequest> | null;
  } catch {
    return null;
  }
  const { command, mode, force } = request ?? {};
  if (command !== 'remount' || (mode !== 'ro' && mode !== 'rw') || typeof force !== 'boolean') return null;
  return { command, mode, force };
}
