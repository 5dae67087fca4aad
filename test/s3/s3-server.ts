import { after } from 'node:test';
import { S3Client } from '@aws-sdk/client-s3';
import { freePorts } from '../../client/dev/free-ports.ts';
import { OneServer } from '../server/one-server.ts';

/** One server with S3, without tokens, for tests of a file. */
export interface S3Server {
  readonly server: OneServer;
  readonly port: number;
  readonly url: string;
}

export async function startS3(flags: readonly string[] = []): Promise<S3Server> {
  const [port] = await freePorts(1);
  const server = await OneServer.start(['--s3-listen', `127.0.0.1:${port}`, ...flags]);
  after(() => server.stop());
  return { server, port: port as number, url: `http://127.0.0.1:${port}` };
}

export function clientOf({ url }: Pick<S3Server, 'url'>): S3Client {
  return new S3Client({
    endpoint: url,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: { accessKeyId: 'any', secretAccessKey: 'any' },
    maxAttempts: 1,
  });
}
