/**
 * Plants known bugs: Node loads other code than its files have. No file is changed or copied. Modules of this process
 * are loaded again for each bug, under addresses that name it: those that are changed, and those that import them. All
 * others are shared.
 */
import { readFileSync } from 'node:fs';
import { registerHooks, stripTypeScriptTypes } from 'node:module';
import { LAUNCHER_VARIABLE, SOURCE_LAUNCHER } from '../launcher.ts';
import { type Anchor, anchoredSource } from './anchor.ts';

const ROOT = new URL('../../', import.meta.url);
/** What a module with a bug imports in the place of `node:test`. */
const TESTS = new URL('planted-tests.ts', import.meta.url).href;

/** A change of one expression or statement of the product. */
export interface Mutation extends Anchor {
  /** Path from the root of the repository. */
  readonly file: string;
}

/** Loads a module of the code with a bug, named by its path from the root of the repository. */
export type Load = (file: string) => Promise<unknown>;

/**
 * @returns sources without types, by the addresses of their files
 * @throws Error if the place of a change is missing, or there are several
 */
export function plantedSources(mutations: readonly Mutation[]): ReadonlyMap<string, string> {
  const files = Map.groupBy(mutations, ({ file }) => file);
  return new Map(
    [...files].map(([file, changes]) => {
      const url = new URL(file, ROOT);
      return [url.href, anchoredSource(readFileSync(url, 'utf8'), changes, file)];
    }),
  );
}

/** A file without types, and the addresses of this repository that it imports. */
interface Module {
  readonly source: string;
  readonly imports: readonly string[];
}

const modules = new Map<string, Module>();

function moduleRead(href: string): Module {
  const known = modules.get(href);
  if (known !== undefined) return known;
  const source = stripTypeScriptTypes(readFileSync(new URL(href), 'utf8'));
  const found = source.matchAll(/\b(?:from|import)\s*\(?\s*'(\.[^']+\.ts|node:test)'/g);
  const addressOf = (path = ''): string => (path === 'node:test' ? TESTS : new URL(path, href).href);
  const module = { source, imports: [...found].map(([, path]) => addressOf(path)) };
  modules.set(href, module);
  return module;
}

/** @returns the modules that `entry` reaches and that import one of `changed`, directly or not, and `changed` itself */
function dependentsOf(changed: readonly string[], entry: string): Set<string> {
  const importers = new Map<string, string[]>();
  const reached = new Set([entry]);
  for (const href of reached) {
    for (const imported of moduleRead(href).imports) {
      reached.add(imported);
      importers.set(imported, [...(importers.get(imported) ?? []), href]);
    }
  }
  const dependents = new Set(changed);
  for (const href of dependents) for (const importer of importers.get(href) ?? []) dependents.add(importer);
  return dependents;
}

/** One bug in this process. */
interface Planting {
  readonly sources: ReadonlyMap<string, string>;
  /** The modules that are loaded again. */
  readonly dependents: Set<string>;
}

/** By the query that is appended to the addresses of modules that have the bug. */
const plantings = new Map<string, Planting>();

function splitAddress(url = ''): [href: string, planting: Planting | undefined, query: string] {
  const at = url.lastIndexOf('?planted=');
  return at < 0 ? [url, undefined, ''] : [url.slice(0, at), plantings.get(url.slice(at)), url.slice(at)];
}

function hooksRegister(): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const [parent, planting, query] = splitAddress(context.parentURL);
      if (planting === undefined || parent === TESTS) return nextResolve(specifier, context);
      if (specifier === 'node:test') return { url: TESTS + query, format: 'module', shortCircuit: true };
      const resolved = nextResolve(specifier, context);
      return planting.dependents.has(resolved.url) ? { ...resolved, url: resolved.url + query } : resolved;
    },
    load(url, context, nextLoad) {
      const [href, planting] = splitAddress(url);
      if (planting === undefined) return nextLoad(url, context);
      const source = planting.sources.get(href) ?? moduleRead(href).source;
      return { format: 'module', source, shortCircuit: true };
    },
  });
}

/**
 * Plants a bug in this process.
 * @throws Error if the place of a change is missing, or there are several
 */
export function plant(mutations: readonly Mutation[]): Load {
  if (plantings.size === 0) hooksRegister();
  const query = `?planted=${plantings.size + 1}`;
  const planting: Planting = { sources: plantedSources(mutations), dependents: new Set() };
  plantings.set(query, planting);
  return (file) => {
    const { href } = new URL(file, ROOT);
    for (const one of dependentsOf([...planting.sources.keys(), TESTS], href)) planting.dependents.add(one);
    return import(planting.dependents.has(href) ? href + query : href);
  };
}

/**
 * Makes a process that is about to start, and those that it starts, load other code; see `plant-process.ts`.
 * @returns the variables to start it with
 * @throws Error if the place of a change is missing, or there are several
 */
export function plantedEnv(mutations: readonly Mutation[]): NodeJS.ProcessEnv {
  const { NODE_TEST_CONTEXT: _, NODE_OPTIONS: options = '', ...env } = process.env;
  const hook = new URL('plant-process.ts', import.meta.url).href;
  return {
    ...env,
    NODE_OPTIONS: `${options} --import=${hook}`,
    PLANTED_SOURCES: JSON.stringify([...plantedSources(mutations)]),
    [LAUNCHER_VARIABLE]: SOURCE_LAUNCHER,
  };
}
