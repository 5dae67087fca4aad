/**
 * Runs a built program (test/build.ts). Node caches what V8 compiles of a module when it is loaded; functions that run
 * later are compiled again in each process, which takes a third of a server's start. A script can be cached with all
 * functions that have run.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { constants, Script } from 'node:vm';

/** A process with this variable stores its compiled code at its end. */
export const KEEP_COMPILED_VARIABLE = 'TEST_KEEP_COMPILED';

type Program = (
  exports: object,
  require: NodeJS.Require,
  module: { exports: object },
  file: string,
  folder: string,
) => void;

/** @returns what the program exports */
export function run<Exports extends object>(url: URL): Exports {
  const file = fileURLToPath(url);
  const kept = `${file}.compiled`;
  const cachedData = read(kept);
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(file, 'latin1')}\n})`;
  const script = new Script(source, {
    filename: file,
    ...(cachedData === undefined ? {} : { cachedData }),
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  if (process.env[KEEP_COMPILED_VARIABLE] === '1') {
    process.on('exit', () => {
      const made = `${kept}-${process.pid}`;
      writeFileSync(made, script.createCachedData());
      renameSync(made, kept);
    });
  }
  const module = { exports: {} };
  const program = script.runInThisContext() as Program;
  program(module.exports, createRequire(file), module, file, dirname(file));
  return module.exports as Exports;
}

function read(file: string): Buffer | undefined {
  try {
    return readFileSync(file);
  } catch {
    return undefined;
  }
}
