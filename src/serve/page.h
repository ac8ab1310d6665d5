// The web page: the files of web/, which are part of the program.
//
//     GET /              index.html
//     GET /assets/NAME   the others
//     GET /openapi.json  docs/openapi.json, what the API takes and gives
//
// Browsers keep the files and ask each time whether they are still right (ETag: 304). The page may
// load and call nothing but this server, and no script of it is inline (Content-Security-Policy).
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "serve/http/server.h"

namespace weft::serve {

struct PageFile {
    std::string_view name;  // "index.html"
    std::string_view type;  // of Content-Type
    std::string_view etag;  // of its bytes, with its quotes
    const unsigned char* bytes;
    size_t size_bytes;
};

// All files, by name. Made by cmake/embed.cmake.
std::span<const PageFile> PageFiles();

// Answers GET and HEAD of the page's paths. False: it is none of them, and nothing was answered.
bool ServePage(Exchange& exchange);

}  // namespace weft::serve
