/* The runners' texts, made from runtime/ by tools/embed. */
#pragma once

extern const char runner_python[], runner_python_fails[], runner_node[];
