import type { ServerInfo } from './catalog-api.ts';

/** @returns until when a server is not to be replaced, in milliseconds since 1970; null if it is not in maintenance */
export function maintenanceUntilMs({ maintenanceNs }: Pick<ServerInfo, 'maintenanceNs'>): number | null {
  return maintenanceNs === undefined ? null : Number(BigInt(maintenanceNs) / 1_000_000n);
}
