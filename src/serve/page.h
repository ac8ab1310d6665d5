// The web page: the files of web/ and of the libraries that it uses, which are part of the program.
//
//     GET /              index.html
//     GET /assets/NAME   the others; NAME is lib/... of what is not Weft's own
//     GET /openapi.json  docs/openapi.json, what the API takes and gives
//
// Text is compressed (gzip) for clients that accept it.
// Browsers keep the files and ask each time whether they are still right (ETag: 304). The page may
// load and call nothing but this server, and no script of it is inline (Content-Security-Policy).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "serve/http/server.h"

namespace weft::serve {

struct PageFile {
    std::string_view name;  // "index.html"
    std::string_view type;  // of Content-Type
    std::string_view etag;  // of its bytes, with its quotes
    const unsigned char* bytes;
    size_t size_bytes;
    bool zipped;  // the bytes are what `gzip -n` makes of the file
};

// All files, by name. Made by cmake/embed.cmake.
std::span<const PageFile> PageFiles();

// What is in a file. Empty: its bytes are not what gzip makes.
std::string PageText(const PageFile& file);

// Whether it is one of the page's paths.
bool IsPage(std::string_view path);

// Answers GET and HEAD of the page's paths. False: it is none of them, and nothing was answered.
bool ServePage(Exchange& exchange);

}  // namespace weft::serve
