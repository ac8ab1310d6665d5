# Writes OUT, one script for a browser, from the CommonJS modules of a Node package in Debian's form:
# ROOT/lib/*.js, and the packages below ROOT/node_modules that they require. The script defines
# window.NAME, without hyphens, as the exports of ROOT/lib/index.js; NAME is the folder's.
#   cmake -DROOT=/usr/share/nodejs/markdown-it -DOUT=markdown-it.js -P bundle_modules.cmake
# `punycode` is a part of Node, not of a package: URL of the browser replaces it.

get_filename_component(global ${ROOT} NAME)
string(REPLACE "-" "" global ${global})
file(GLOB_RECURSE paths RELATIVE ${ROOT} ${ROOT}/lib/*.js ${ROOT}/lib/*.json ${ROOT}/node_modules/*.js)
list(SORT paths)
set(modules "")
foreach(path ${paths})
  file(READ ${ROOT}/${path} text)
  if(path MATCHES "\\.json$")
    set(text "module.exports = ${text};")
  endif()
  string(APPEND modules "  \"${path}\": function (module, exports, require) {\n${text}\n  },\n")
endforeach()

file(WRITE ${OUT} "(function () {
  \"use strict\";
  const modules = {
${modules}
    \"node_modules/punycode/index.js\": function (module) {
      module.exports = {
        toASCII: (host) => new URL(\"http://\" + host).hostname,
        toUnicode: (host) => host,
      };
    },
  };
  const loaded = {};
  function resolve(folder, name) {
    const parts = name.startsWith(\".\") ? folder : [\"node_modules\"];
    const joined = [];
    for (const part of [...parts, ...name.split(\"/\")]) {
      if (part === \"..\") joined.pop();
      else if (part !== \".\" && part !== \"\") joined.push(part);
    }
    const path = joined.join(\"/\");
    return [path, path + \".js\", path + \"/index.js\"].find((each) => each in modules);
  }
  function load(path) {
    if (!(path in loaded)) {
      const module = { exports: {} };
      loaded[path] = module;
      const folder = path.split(\"/\").slice(0, -1);
      modules[path](module, module.exports, (name) => load(resolve(folder, name)));
    }
    return loaded[path].exports;
  }
  window.${global} = load(\"lib/index.js\");
})();
")
