import { connect, type Socket } from 'node:net';

/** ZooKeeper's protocol: each packet has its length and then integers, most significant byte first. */
const OP_CREATE = 1;
const OP_CLOSE = -11;
const FLAG_EPHEMERAL = 1;
const PERMISSIONS_ALL = 31;
const ERROR_NODE_EXISTS = -110;
const PASSWORD_BYTES = 16;
const LENGTH_BYTES = 4;
/** A reply begins with the number of the request, the transaction and the error. */
const REPLY_ERROR_PLACE = 12;
/** The session lasts as long as the server allows without pings. */
const SESSION_TIMEOUT_MS = 40_000;

/** Encodes the numbers and texts of one packet. */
class Packet {
  readonly #parts: Buffer[] = [];

  int(value: number): this {
    const bytes = Buffer.allocUnsafe(4);
    bytes.writeInt32BE(value);
    this.#parts.push(bytes);
    return this;
  }

  long(value: bigint): this {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigInt64BE(value);
    this.#parts.push(bytes);
    return this;
  }

  bytes(value: Buffer): this {
    this.int(value.length);
    this.#parts.push(value);
    return this;
  }

  text(value: string): this {
    return this.bytes(Buffer.from(value));
  }

  finish(): Buffer {
    const body = Buffer.concat(this.#parts);
    const length = Buffer.allocUnsafe(LENGTH_BYTES);
    length.writeInt32BE(body.length);
    return Buffer.concat([length, body]);
  }
}

/**
 * A session with one ZooKeeper server: any number of pending requests, answered in order. It does what ZooKeeper's own
 * asynchronous clients do, but sends no pings and does not reconnect.
 */
export class JuteSession {
  readonly #socket: Socket;
  readonly #waiting: ((packet: Buffer) => void)[] = [];
  #answered = 0;
  #received: Buffer = Buffer.alloc(0);
  #nextRequest = 1;
  #fail: (error: Error) => void = () => undefined;
  readonly #failed: Promise<never>;

  private constructor(socket: Socket) {
    this.#socket = socket;
    this.#failed = new Promise((_, reject) => {
      this.#fail = reject;
    });
    // Callers that wait get the error; without them it is ignored.
    this.#failed.catch(() => undefined);
    socket.setNoDelay(true);
    socket.on('data', (bytes: Buffer) => this.#onData(bytes));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('ZooKeeper has closed the connection')));
  }

  /** @throws Error if no server listens on the port, or it refuses a session */
  static async open(port: number): Promise<JuteSession> {
    const session = new JuteSession(connect(port, '127.0.0.1'));
    const hello = new Packet().int(0).long(0n).int(SESSION_TIMEOUT_MS).long(0n);
    const [answer] = await session.#send([hello.bytes(Buffer.alloc(PASSWORD_BYTES)).finish()]);
    if (answer === undefined || answer.readInt32BE(4) === 0) throw new Error('ZooKeeper gave no session');
    return session;
  }

  /**
   * Creates nodes, all at once. Resolves once all exist.
   *
   * @param ephemeral they vanish with this session: such a node is a lease in ZooKeeper
   * @throws Error if a node cannot be created, unless a persistent one exists already
   */
  async create(paths: readonly string[], ephemeral: boolean): Promise<void> {
    const requests = paths.map((path) =>
      new Packet()
        .int(this.#nextRequest++)
        .int(OP_CREATE)
        .text(path)
        .bytes(Buffer.alloc(0))
        .int(1)
        .int(PERMISSIONS_ALL)
        .text('world')
        .text('anyone')
        .int(ephemeral ? FLAG_EPHEMERAL : 0)
        .finish(),
    );
    for (const reply of await this.#send(requests)) {
      const error = reply.readInt32BE(REPLY_ERROR_PLACE);
      if (error === 0 || (!ephemeral && error === ERROR_NODE_EXISTS)) continue;
      throw new Error(`ZooKeeper made no node: error ${error}`);
    }
  }

  /** Ends the session: the servers have removed its nodes when this resolves. */
  async close(): Promise<void> {
    await this.#send([
      new Packet()
        .int(this.#nextRequest++)
        .int(OP_CLOSE)
        .finish(),
    ]);
    this.#socket.destroy();
  }

  #send(packets: readonly Buffer[]): Promise<Buffer[]> {
    const answers: Buffer[] = [];
    const all = new Promise<Buffer[]>((resolve) => {
      for (let index = 0; index < packets.length; index++) {
        this.#waiting.push((answer) => {
          answers.push(answer);
          if (answers.length === packets.length) resolve(answers);
        });
      }
    });
    this.#socket.write(Buffer.concat(packets));
    return Promise.race([all, this.#failed]);
  }

  #onData(bytes: Buffer): void {
    const received = this.#received.length === 0 ? bytes : Buffer.concat([this.#received, bytes]);
    let at = 0;
    while (received.length - at >= LENGTH_BYTES) {
      const end = at + LENGTH_BYTES + received.readInt32BE(at);
      if (received.length < end) break;
      this.#waiting[this.#answered++]?.(received.subarray(at + LENGTH_BYTES, end));
      at = end;
    }
    this.#received = received.subarray(at);
    if (this.#answered === this.#waiting.length) {
      this.#waiting.length = 0;
      this.#answered = 0;
    }
  }
}
