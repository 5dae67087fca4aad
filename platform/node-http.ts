import type * as Http from 'node:http';
import { createRequire } from 'node:module';

/** The used parts of `node:http`: an `import` reads every export and so loads `fetch` and WebSocket (decision 0078). */
const http = createRequire(import.meta.url)('node:http') as typeof Http;

export const { createServer, get, IncomingMessage, ServerResponse, STATUS_CODES } = http;
export type IncomingMessage = Http.IncomingMessage;
export type ServerResponse = Http.ServerResponse;
