/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into programs with SLIPRING_GLIBC_2_28: the C library's start file, which is newer, calls a version of
 * __libc_start_main that older ones do not have. Between its two versions there is one difference: the older one calls the
 * constructors by `init`, which is NULL here, so a C library before 2.34 calls none. These programs have none. */
typedef void function(void);
typedef int main_function(int argc, char **argv, char **env);

int slr_old_start_main(main_function *main, int argc, char **argv, function *init, function *fini, function *rtld_fini,
                       void *stack_end);
#if defined(__x86_64__)
__asm__(".symver slr_old_start_main,__libc_start_main@GLIBC_2.2.5");
#else
__asm__(".symver slr_old_start_main,__libc_start_main@GLIBC_2.17");
#endif

/* Hidden: else the older one would be looked for here as well, and found. */
__attribute__((visibility("hidden"))) int __libc_start_main(main_function *main, int argc, char **argv, function *init,
                                                            function *fini, function *rtld_fini, void *stack_end);

int __libc_start_main(main_function *main, int argc, char **argv, function *init, function *fini, function *rtld_fini,
                      void *stack_end)
{
    return slr_old_start_main(main, argc, argv, init, fini, rtld_fini, stack_end);
}
