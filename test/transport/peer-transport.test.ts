import { transportConformance } from '../conformance/transport.ts';
import { PeerCluster } from './peer-cluster.ts';

transportConformance('sockets', () => new PeerCluster());
