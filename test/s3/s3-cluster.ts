import { after } from 'node:test';
import { freePorts } from '../../client/dev/free-ports.ts';
import { RealCluster } from '../cluster/real-cluster.ts';

export interface S3Cluster {
  readonly cluster: RealCluster;
  /** Of the servers' listeners of S3, in the order of the servers. */
  readonly urls: readonly string[];
}

/** Server processes with S3, for tests of a file. */
export async function startS3Cluster(servers: number): Promise<S3Cluster> {
  const ports = await freePorts(servers);
  const listen = (place: number): string => `127.0.0.1:${ports[place]}`;
  const cluster = await RealCluster.start({
    servers,
    environment: (place) => ({ LEASEHOLD_S3_LISTEN: listen(place) }),
  });
  after(() => cluster.stop());
  return { cluster, urls: ports.map((_, place) => `http://${listen(place)}`) };
}
