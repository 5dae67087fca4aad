import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:net';
import type { Problem } from '../../wire/http-api.ts';

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  readonly text: string;
}

/** One request with the path exactly as given: `fetch` would normalize it. */
export function ask(
  base: string,
  method: string,
  path: string,
  options: {
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string | Uint8Array;
  } = {},
): Promise<Answer> {
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const { hostname, port } = new URL(base);
  const request = httpRequest({
    host: hostname,
    port,
    method,
    path,
    headers: { ...options.headers },
    agent: false,
  });
  request.on('error', reject);
  request.on('response', async (response) => {
    try {
      const parts: Buffer[] = [];
      for await (const part of response) parts.push(part as Buffer);
      const bytes = Buffer.concat(parts);
      resolve({
        status: response.statusCode ?? 0,
        headers: response.headers,
        bytes,
        text: bytes.toString(),
      });
    } catch (error) {
      reject(error);
    }
  });
  request.end(options.body);
  return promise;
}

export function problemIn(answer: Answer): Problem {
  return JSON.parse(answer.text) as Problem;
}

export async function askJson<Value>(base: string, path: string): Promise<Value> {
  const answer = await ask(base, 'GET', path);
  if (answer.status !== 200) throw new Error(`GET ${path}: ${answer.status} ${answer.text}`);
  return JSON.parse(answer.text) as Value;
}

/** Sends bytes that need not be HTTP, and returns all that is received before the server closes. */
export function sendRaw(base: string, bytes: string | Uint8Array): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const { hostname, port } = new URL(base);
  const socket = connect(Number(port), hostname, () => socket.end(bytes));
  let text = '';
  socket.on('data', (data) => {
    text += data.toString('latin1');
  });
  // A reset counts as a close; the test checks what was received before.
  socket.on('error', () => socket.destroy());
  socket.on('close', () => resolve(text));
  return promise;
}
