import type { Response } from '../../../client/transport/response.ts';
import {
  type ServerChannel,
  type ServerRequest,
  type StreamedResponse,
  wholeBody,
} from '../../../client/transport/server-channel.ts';
import type { HttpChannel, StreamedAnswer } from '../../../platform/http-channel.ts';

/** @returns the channel of a client library over a simulated one */
export function clientChannel(channel: HttpChannel): ServerChannel {
  const request = ({ body, ...rest }: ServerRequest): Promise<Response> =>
    channel.request({ ...rest, body: wholeBody(body) });
  return {
    request,
    stream: async ({ body, ...rest }) => streamed(await channel.stream({ ...rest, body: wholeBody(body) })),
    probe: async (signal) => {
      const { statusCode } = await request({ method: 'GET', path: '/livez', signal });
      if (statusCode >= 500) throw new Error(`HTTP status ${statusCode}`);
    },
    hasReceived: () => false,
    connectMs: 0,
    close: () => channel.close(),
    destroy: () => channel.destroy(),
  };
}

function streamed({ statusCode, headers, body }: StreamedAnswer): StreamedResponse {
  const text = async (): Promise<string> => {
    let whole = '';
    for await (const piece of body) whole += piece;
    return whole;
  };
  const whole = {
    text,
    bytes: async () => Buffer.from(await text()),
    json: async () => JSON.parse(await text()) as unknown,
    setEncoding: () => undefined,
  };
  return {
    statusCode,
    headers,
    body: { ...whole, [Symbol.asyncIterator]: () => body[Symbol.asyncIterator]() },
  };
}
