import type { Response } from '../../../client/response.ts';
import {
  type ServerChannel,
  type ServerRequest,
  type StreamedResponse,
  wholeBody,
} from '../../../client/server-channel.ts';
import type { HttpChannel } from '../../../http-parts/http-channel.ts';

/** @returns the way of a client library over a simulated channel, on which each answer comes in one piece */
export function clientChannel(channel: HttpChannel): ServerChannel {
  const request = ({ body, ...rest }: ServerRequest): Promise<Response> =>
    channel.request({ ...rest, body: wholeBody(body) });
  return {
    request,
    stream: async (asked) => streamed(await request(asked)),
    probe: async (signal) => {
      const { statusCode } = await request({ method: 'GET', path: '/livez', signal });
      if (statusCode >= 500) throw new Error(`HTTP status ${statusCode}`);
    },
    hasMoved: () => false,
    connectMs: 0,
    close: () => channel.close(),
    destroy: () => channel.destroy(),
  };
}

function streamed({ statusCode, headers, body }: Response): StreamedResponse {
  const pieces = {
    ...body,
    setEncoding: () => undefined,
    async *[Symbol.asyncIterator]() {
      yield await body.text();
    },
  };
  return { statusCode, headers, body: pieces };
}
