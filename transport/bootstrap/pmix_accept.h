/* Who may connect to the PMIx server of this process: the processes of its user.
 *
 * PMIx 4.2.2 listens on a TCP port of the loopback interface, which all users of the host reach, and reads what comes before it asks who sends
 * it: some bytes crash it, others make it print "PMIX ERROR" each time. The program's accept(2), which libpmix calls, closes what comes from
 * others before PMIx sees it, and warns once a minute on standard error.
 */
#ifndef GN_TRANSPORT_BOOTSTRAP_PMIX_ACCEPT_H
#define GN_TRANSPORT_BOOTSTRAP_PMIX_ACCEPT_H

/* Before PMIx_server_init(). For the whole process, until it ends. */
void gn_pmix_accept_guard(void);

#endif
