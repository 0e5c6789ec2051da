/* Against the standard's own examples, and against lengths around the ends of blocks as another program computed them. */
#include "unit.h"

#include <string.h>

#include "base/sha256.h"

static const struct {
	const char *text; /* or, when NULL, n times 'a' */
	size_t n;
	const char *hex;
} cases[] = {
	{ "", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
	{ "abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
	{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
	  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	{ NULL, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318" },
	{ NULL, 56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a" },
	{ NULL, 63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34" },
	{ NULL, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb" },
	{ NULL, 65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0" },
	{ NULL, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
};

START_TEST(known)
{
	static char many[1000000];
	char hex[SHA256_HEX + 1];

	memset(many, 'a', sizeof(many));
	sha256_hex(cases[_i].text ? cases[_i].text : many, cases[_i].n, hex);
	ck_assert_str_eq(hex, cases[_i].hex);
}
END_TEST

static void fill(TCase *t)
{
	tcase_add_loop_test(t, known, 0, (int)(sizeof(cases) / sizeof(cases[0])));
}

int main(void)
{
	return unit_main("sha256", fill);
}
