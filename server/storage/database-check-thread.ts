import { parentPort, workerData } from 'node:worker_threads';
import { damageIn } from './database-check.ts';

/** Checks the database whose path is its data, and posts the first damage, or null. */

parentPort?.postMessage(damageIn(workerData as string));
