import type { ChannelAnswer } from '../../platform/http-channel.ts';
import { HEADER_SIZE } from '../../wire/http-api.ts';

export type Response = ChannelAnswer;

/** Reads a JSON answer; servers are trusted to keep to the contract. */
export async function readJson<Value>(response: Response): Promise<Value> {
  return (await response.body.json()) as Value;
}

/** Reads an answer with contents. @throws Error if it ends early */
export async function readBytes(
  response: Response,
): Promise<{ readonly bytes: Uint8Array; readonly sizeBytes: number }> {
  const bytes = await response.body.bytes();
  const announced = response.headers['content-length'];
  // An answer that ends early is a failed attempt, not a short read.
  if (typeof announced === 'string' && Number(announced) !== bytes.length) {
    throw new Error(`the answer ended after ${bytes.length} of ${announced} bytes`);
  }
  const size = response.headers[HEADER_SIZE];
  return { bytes, sizeBytes: typeof size === 'string' ? Number(size) : 0 };
}
