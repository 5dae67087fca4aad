import { type ClientHttp2Session, connect, constants } from 'node:http2';

/** The prefix of a message: one byte whether it is compressed, four for its length. */
const PREFIX_BYTES = 5;
const WIRE_VARINT = 0;
const WIRE_BYTES = 2;

/** Encodes one field of a protobuf message: a number as an integer, others as bytes. */
export function protobufField(number: number, value: number | bigint | string | Buffer): Buffer {
  if (typeof value === 'number' || typeof value === 'bigint')
    return Buffer.concat([varint(BigInt(number * 8 + WIRE_VARINT)), varint(BigInt(value))]);
  const bytes = typeof value === 'string' ? Buffer.from(value) : value;
  return Buffer.concat([varint(BigInt(number * 8 + WIRE_BYTES)), varint(BigInt(bytes.length)), bytes]);
}

/**
 * @returns the integer in a field of a message; 0n if the field is absent, as in protobuf
 * @throws Error on types of fields that etcd's answers do not have
 */
export function protobufInteger(message: Buffer, wanted: number): bigint {
  let at = 0;
  const read = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = message.readUInt8(at++);
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.length) {
    const tag = Number(read());
    const value = read();
    if (tag % 8 === WIRE_BYTES) at += Number(value);
    else if (tag % 8 !== WIRE_VARINT) throw new Error(`A protobuf field of kind ${tag % 8}`);
    else if (tag >> 3 === wanted) return value;
  }
  return 0n;
}

function varint(value: bigint): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80n) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Buffer.from(bytes);
}

/** One connection to a gRPC server, without encryption, with any number of pending calls. */
export class GrpcConnection {
  readonly #session: ClientHttp2Session;

  private constructor(session: ClientHttp2Session) {
    this.#session = session;
  }

  /** @throws Error if no server listens on the port */
  static async open(port: number): Promise<GrpcConnection> {
    const session = connect(`http://127.0.0.1:${port}`);
    await new Promise<void>((resolve, reject) => {
      session.once('connect', () => resolve());
      session.once('error', reject);
    });
    // Pending calls fail by themselves.
    session.on('error', () => session.destroy());
    return new GrpcConnection(session);
  }

  /** @throws Error if the server refuses, or the connection breaks */
  call(method: string, request: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const stream = this.#session.request({
        [constants.HTTP2_HEADER_METHOD]: 'POST',
        [constants.HTTP2_HEADER_PATH]: method,
        'content-type': 'application/grpc',
        te: 'trailers',
      });
      const parts: Buffer[] = [];
      let status: unknown;
      let reason: unknown;
      const onHeaders = (headers: Readonly<Record<string, unknown>>): void => {
        status = headers['grpc-status'] ?? status;
        reason = headers['grpc-message'] ?? reason;
      };
      stream.on('response', onHeaders);
      stream.on('trailers', onHeaders);
      stream.on('data', (bytes: Buffer) => parts.push(bytes));
      stream.on('error', reject);
      stream.on('close', () => {
        if (Number(status) === 0) resolve(Buffer.concat(parts).subarray(PREFIX_BYTES));
        else reject(new Error(`${method} failed: ${reason ?? 'no answer'}`));
      });
      const prefix = Buffer.alloc(PREFIX_BYTES);
      prefix.writeUInt32BE(request.length, 1);
      stream.end(Buffer.concat([prefix, request]));
    });
  }

  close(): void {
    this.#session.destroy();
  }
}
