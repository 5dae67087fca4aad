/** The gRPC server of the plugin, on a socket of this machine. */
import { fileURLToPath } from 'node:url';
import {
  type GrpcObject,
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { ServiceError } from '../../base/errors.ts';
import { CommandFailure, isSystemError } from '../terminal/failure.ts';
import { CallFailure, statusOf } from './call-failure.ts';
import type { Controller } from './controller.ts';
import type { Identity } from './identity.ts';
import type { Log } from './launcher.ts';
import type { Node } from './node.ts';
import { listenAt } from './socket-file.ts';

const PROTO = fileURLToPath(new URL('csi.proto', import.meta.url));
type ServiceName = 'Identity' | 'Controller' | 'Node';

/** @returns the services of `csi.proto`; a client is made of them, too */
export function csiServices(): Readonly<Record<ServiceName, ServiceClientConstructor>> {
  const definition = loadSync(PROTO, { longs: String, enums: String, defaults: true, oneofs: false });
  const { v1 } = loadPackageDefinition(definition).csi as { readonly v1: GrpcObject };
  const { Identity, Controller, Node } = v1 as Readonly<Record<ServiceName, ServiceClientConstructor>>;
  return { Identity, Controller, Node };
}

export interface CsiServices {
  readonly identity: Identity;
  readonly controller: Controller | null;
  readonly node: Node | null;
}

type Handler = (request: never) => Promise<object>;

/** Serves calls until `stop`. A call that runs then is waited for. */
export class CsiServer {
  readonly #server = new Server();
  readonly #log: Log;

  constructor({ identity, controller, node }: CsiServices, log: Log) {
    this.#log = log;
    const { Identity, Controller, Node } = csiServices();
    this.#add(Identity, {
      GetPluginInfo: () => identity.pluginInfo(),
      GetPluginCapabilities: () => identity.capabilities(),
      Probe: () => identity.probe(),
    });
    if (controller !== null)
      this.#add(Controller, {
        CreateVolume: (request) => controller.createVolume(request),
        DeleteVolume: (request) => controller.deleteVolume(request),
        ValidateVolumeCapabilities: (request) => controller.validateCapabilities(request),
        ListVolumes: (request) => controller.listVolumes(request),
        GetCapacity: (request) => controller.getCapacity(request),
        ControllerGetCapabilities: () => controller.capabilities(),
        CreateSnapshot: (request) => controller.createSnapshot(request),
        DeleteSnapshot: (request) => controller.deleteSnapshot(request),
        ListSnapshots: (request) => controller.listSnapshots(request),
        ControllerExpandVolume: (request) => controller.expandVolume(request),
      });
    if (node !== null)
      this.#add(Node, {
        NodeStageVolume: (request) => node.stage(request),
        NodeUnstageVolume: (request) => node.unstage(request),
        NodePublishVolume: (request) => node.publish(request),
        NodeUnpublishVolume: (request) => node.unpublish(request),
        NodeGetVolumeStats: (request) => node.stats(request),
        NodeGetCapabilities: () => node.capabilities(),
        NodeGetInfo: () => node.info(),
      });
  }

  #add({ service }: ServiceClientConstructor, handlers: Readonly<Record<string, Handler>>): void {
    const implementation = Object.entries(handlers).map(([name, handler]) => [
      name,
      (call: ServerUnaryCall<never, object>, answer: sendUnaryData<object>) =>
        void this.#serve(name, handler, call.request, answer),
    ]);
    this.#server.addService(service, Object.fromEntries(implementation));
  }

  async #serve(name: string, handler: Handler, request: never, answer: sendUnaryData<object>): Promise<void> {
    try {
      answer(null, await handler(request));
    } catch (error) {
      const { code, message } = statusOf(error);
      // What the caller sees suffices, unless it is a bug.
      const isBug = code === 'INTERNAL' && error instanceof Error && !isExpected(error);
      this.#log('a call failed', {
        call: name,
        code,
        error: message,
        ...(isBug ? { stack: error.stack } : {}),
      });
      answer({ code: status[code], details: message });
    }
  }

  async listen(socket: string): Promise<void> {
    await listenAt(
      socket,
      (path) =>
        new Promise((resolve, reject) => {
          this.#server.bindAsync(`unix://${path}`, ServerCredentials.createInsecure(), (error) => {
            if (error === null) resolve();
            else reject(error);
          });
        }),
    );
  }

  /** Resolves when all calls have ended. */
  stop(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#server.tryShutdown((error) => (error === undefined ? resolve() : reject(error)));
    });
  }
}

function isExpected(error: Error): boolean {
  return (
    error instanceof CallFailure ||
    error instanceof CommandFailure ||
    error instanceof ServiceError ||
    isSystemError(error)
  );
}
